"""A window of the worker's C library, with a driver whose GPU is this processor's memory.

Invariants:
- when a window begins the inputs are there, and the word behind them says so;
- it lasts until the runner says that it is done, and no longer than its limit;
- pieces of outputs are read where the runner says that they lie, in its memory only (in its inputs
  if they may lie there), and again when they are asked for again;
- a call is made when the one before has returned, and one that is held back gets its inputs only
  after a pause, in which what the call before has given is read;
- a driver without a call that is needed is told of by the call's name.
"""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from evolve.worker.ipc import native
from tests.worker.fake_driver import LIBRARIES, WRITES, build_driver
from tests.worker.serving import ROOT

REFEREE = """
import ctypes, json, socket, subprocess, sys, threading, time
import numpy as np

COUNTS = "print(1, flush=True)\\nwhile True: pass"
from evolve.worker.ipc import native
from evolve.worker.ipc.signals import Calls, Signals

library = native.load(sys.argv[1])
failed = ctypes.c_char_p()
is_hip, driver = int(sys.argv[2] == "hip"), sys.argv[3].encode()
code = library.evolve_open_clock(driver, is_hip, 4, ctypes.byref(failed))
if code:
    print(json.dumps({"code": code, "failed": failed.value.decode()}))
    sys.exit()

SIZE, PAGE, CLAIMED, AT = 1 << 16, 4096, 1 << 40, 8192
GIVEN = 1 << 41  # where the runner says that its inputs lie
staged = np.random.default_rng(0).integers(0, 255, SIZE, dtype=np.uint8)


def window(runner, limit_s=20.0, places=(CLAIMED + AT,), spin_s=0.0, aliased=0):
    inputs, pool = np.zeros(SIZE + PAGE, np.uint8), np.zeros(1 << 20, np.uint8)
    flush, seen = np.ones(2 * PAGE, np.uint8), np.zeros(64, np.uint8)
    flush[PAGE:] = 0
    signals, (ours, theirs) = Signals(), socket.socketpair()
    piece = native.Piece(word=Signals.word(0), start=100, length=64, to=seen.ctypes.data,
                         aliased=aliased)
    asked = native.WindowArguments(
        inputs=inputs.ctypes.data, staged=staged.ctypes.data, bytes=SIZE,
        first=SIZE, flush=flush.ctypes.data, flush_bytes=PAGE, gate=inputs.ctypes.data + SIZE,
        go=signals.go, done=signals.done, given=signals.given, made=signals.made,
        page=signals.address, sequence=7,
        spin_ns=int(spin_s * 1e9), limit_ns=int(limit_s * 1e9), fd=ours.fileno(),
        pieces=ctypes.pointer(piece), count=1, pool=CLAIMED, view=pool.ctypes.data,
        pool_bytes=pool.size, claimed=GIVEN,
    )
    found = {}

    def run():
        assert signals.await_go(library, 7, 0.0, 20.0)
        found["inputs"] = bool((inputs[:SIZE] == staged).all())
        found["gate"] = int(inputs[SIZE:].view(np.uint32)[0])
        found["flushed"] = bool(flush[PAGE:].all())
        pool[AT : AT + SIZE] = inputs[:SIZE] + 1
        calls = Calls(signals, library, 7, spin_s, 20.0)
        calls.tell(places)
        calls.end()
        runner(signals, theirs)

    thread = threading.Thread(target=run)
    thread.start()
    found["outcome"] = library.evolve_window(ctypes.byref(asked))
    thread.join()
    found["seconds"] = (asked.ended - asked.begun) * 1e-9 if asked.ended else None
    found["right"] = bool((seen == staged[100:164] + 1).all())
    found["is_input"] = bool((seen == staged[100:164]).all())
    pool[AT : AT + SIZE] = 0
    found["again"] = library.evolve_read(ctypes.byref(asked))
    found["changed"] = not seen.any()
    return found


def finish(signals, _):
    signals.finish(library, 7, 1, 0.0)


def finish_late(signals, _):
    time.sleep(0.2)
    finish(signals, _)


def block(runner, spin_s=0.0, pid=0):
    # Four calls of a quarter of the inputs each; those of the third are held back.
    quarter, pool = SIZE // 4, np.zeros(SIZE, np.uint8)
    inputs, decoys = np.zeros(SIZE + PAGE, np.uint8), np.full(SIZE, 9, np.uint8)
    flush, seen, early = np.zeros(2 * PAGE, np.uint8), np.zeros(8, np.uint8), np.zeros(8, np.uint8)
    signals, (ours, theirs) = Signals(), socket.socketpair()
    piece = native.Piece(word=Signals.word(1), start=5, length=8, after=2, to=seen.ctypes.data,
                         early=early.ctypes.data)
    pause = native.Pause(after=2, start=2 * quarter, end=SIZE)
    asked = native.WindowArguments(
        inputs=inputs.ctypes.data, staged=staged.ctypes.data, decoys=decoys.ctypes.data,
        bytes=SIZE, first=2 * quarter, flush=flush.ctypes.data, flush_bytes=PAGE,
        gate=inputs.ctypes.data + SIZE, go=signals.go, done=signals.done, given=signals.given,
        made=signals.made, page=signals.address, sequence=7, calls=4, spin_ns=int(spin_s * 1e9),
        limit_ns=int(20e9), pause_ns=int(50e6), fd=ours.fileno(), pieces=ctypes.pointer(piece),
        count=1, pauses=ctypes.pointer(pause), pause_count=1, pool=CLAIMED, view=pool.ctypes.data,
        pool_bytes=pool.size, pid=pid,
    )

    def run():
        assert signals.await_go(library, 7, spin_s, 20.0)
        calls = Calls(signals, library, 7, spin_s, 20.0)
        runner(calls, [(inputs[at : at + quarter], pool[at : at + quarter], CLAIMED + at)
                       for at in range(0, SIZE, quarter)])
        signals.finish(library, 7, calls.end(), 0.0)

    thread = threading.Thread(target=run)
    thread.start()
    outcome = library.evolve_window(ctypes.byref(asked))
    thread.join()
    return {
        "outcome": outcome, "outputs": signals.answer()[1] == tuple(CLAIMED + at for at in
                                                                    range(0, SIZE, quarter)),
        "right": [bool((pool[at : at + quarter] == staged[at : at + quarter]).all())
                  for at in range(0, SIZE, quarter)],
        "was_there": bool((early == staged[quarter + 5 : quarter + 13]).all()),
        "is_there": bool((seen == staged[quarter + 5 : quarter + 13]).all()),
        "seconds": (asked.ended - asked.begun) * 1e-9,
    }


def one_by_one(calls, sets):
    for values, output, place in sets:
        calls.await_next()
        output[:] = values
        calls.tell([place])


def all_by_the_first(calls, sets):
    for at, (_, _, place) in enumerate(sets):
        calls.await_next()
        for values, output, _ in () if at else sets:
            output[:] = values
        calls.tell([place])


def all_by_the_last(calls, sets):
    for at, (_, _, place) in enumerate(sets):
        calls.await_next()
        for values, output, _ in sets if at == 3 else ():
            output[:] = values
        calls.tell([place])


def with_child():
    # A process that counts for as long as it is let.
    child = subprocess.Popen([sys.executable, "-c", COUNTS], stdout=subprocess.PIPE)
    child.stdout.readline()
    counted = []

    def watching(calls, sets):
        for values, output, place in sets:
            calls.await_next()
            counted.append(cpu_s(child.pid))
            output[:] = values
            calls.tell([place])

    found = block(watching, pid=child.pid)
    going = cpu_s(child.pid)
    time.sleep(0.2)
    found["goes_on"] = cpu_s(child.pid) > going
    child.kill()
    child.wait()
    return {**found, "worked_s": counted[2] - counted[1]}


def cpu_s(pid):
    return time.clock_gettime((~pid << 3) | 2)


print(json.dumps({
    "stopped": with_child(),
    "one by one": block(one_by_one),
    "one by one, spinning": block(one_by_one, spin_s=20.0),
    "all by the first": block(all_by_the_first),
    "all by the last": block(all_by_the_last),
    "honest": window(finish),
    "spinning": window(finish, spin_s=20.0),
    "late": window(finish_late),
    "silent": window(lambda *_: None, limit_s=0.2),
    "of another window": window(lambda signals, _: signals.finish(library, 6, 1, 0.0), limit_s=0.2),
    "speaking": window(lambda _, theirs: theirs.send(b"!")),
    "ended": window(lambda _, theirs: theirs.close()),
    "astray": window(finish, places=(CLAIMED + (1 << 20),)),
    "an input": window(finish, places=(GIVEN,), aliased=1),
    "an input that it must not be": window(finish, places=(GIVEN,)),
    "behind the inputs": window(finish, places=(GIVEN + SIZE - 120,), aliased=1),
}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What the judge finds with a driver that has all calls, or one fewer."""

    def running(name, **lacking):
        folder = tmp_path_factory.mktemp("driver")
        build_driver(folder, name, **lacking)
        said = subprocess.check_output(
            [sys.executable, "-c", REFEREE, native.build(folder), name, LIBRARIES[name]],
            text=True,
            cwd=ROOT,
            timeout=100,
            env={**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(ROOT)},
        )
        return json.loads(said)

    return running


@pytest.fixture(scope="module", params=sorted(LIBRARIES))
def windows(run, request):
    return run(request.param)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["honest", "spinning", "late"])
def test_a_window_begins_with_its_inputs_and_ends_with_pieces_of_its_outputs(windows, kind):
    found = windows[kind]
    assert found["outcome"] == native.TIMED
    assert found["inputs"]
    assert found["gate"] == 7
    assert found["flushed"]
    assert found["right"]
    assert 0 < found["seconds"] < 20


def test_an_output_is_read_from_the_inputs_where_the_references_lies_there(windows):
    assert windows["an input"]["outcome"] == native.TIMED
    assert windows["an input"]["is_input"]


@pytest.mark.sample(1)
def test_a_window_lasts_until_its_calls_are_done(windows):
    assert windows["late"]["seconds"] >= 0.2


def test_what_becomes_of_a_piece_later_is_seen_when_it_is_read_again(windows):
    assert windows["honest"]["again"] == native.TIMED
    assert windows["honest"]["changed"]


@pytest.mark.parametrize("kind", ["one by one", "one by one, spinning"])
def test_calls_that_are_made_one_by_one_find_their_inputs(windows, kind):
    found = windows[kind]
    assert found["outcome"] == native.TIMED
    assert found["outputs"]
    assert all(found["right"])
    assert found["was_there"]
    assert found["is_there"]
    assert found["seconds"] >= 0.05


def test_a_runner_stands_still_while_the_referee_pauses(windows):
    found = windows["stopped"]
    assert found["outcome"] == native.TIMED
    assert found["worked_s"] < 0.03  # of a pause of 0.05 s
    assert found["goes_on"]


def test_who_makes_calls_before_their_time_has_not_their_inputs(windows):
    assert windows["all by the first"]["right"] == [True, True, False, False]


def test_who_makes_calls_after_their_time_has_not_their_outputs(windows):
    assert windows["all by the last"]["is_there"]
    assert not windows["all by the last"]["was_there"]


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("silent", native.AT_LIMIT),
        ("of another window", native.AT_LIMIT),
        ("speaking", native.SPOKEN),
        ("ended", native.SPOKEN),
        ("astray", native.ASTRAY),
        ("an input that it must not be", native.ASTRAY),
        ("behind the inputs", native.ASTRAY),
    ],
)
def test_a_window_that_does_not_end_as_it_should_has_no_pieces(windows, kind, outcome):
    assert windows[kind]["outcome"] == outcome
    assert not windows[kind]["right"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LIBRARIES))
def test_a_driver_without_a_call_is_told_of_by_its_name(run, name):
    assert run(name, writes=False) == {"code": -1, "failed": WRITES[name]}


def test_a_host_without_a_driver_lacks_the_first_call(tmp_path):
    library, failed = native.load(native.build(tmp_path)), ctypes.c_char_p()
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        assert library.evolve_open_clock(b"libcuda.so.1", 0, 1, ctypes.byref(failed)) == -1
        assert failed.value == b"cuCtxGetCurrent"
    else:
        pytest.skip("it has one")
