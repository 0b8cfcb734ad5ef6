"""Words of a page that two processes share, and the C library that waits for them.

Invariants:
- a word that one process sets is seen by another, which spins for it or sleeps until it is woken;
- a wait ends at its deadline, and when the other process speaks on its channel or ends;
- nothing that a runner writes there reaches beyond its own memory, or is believed for its size;
- where the library cannot be built, the message says what to install.
"""

import ctypes
import mmap
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolve.core.errors import EvaluatorUnavailable
from evolve.worker.ipc import native
from evolve.worker.ipc.native import ASTRAY, LATE, SEEN
from evolve.worker.ipc.signals import MAX_ADDRESSES, SIZE, Calls, Signals
from tests.worker.serving import ROOT

MB = 1 << 20
SPOKE = -1  # of `evolve_wait`


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return native.build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def library(path):
    return native.load(path)


@pytest.fixture
def wait(library):
    """Waits for a word of a page to have a value, for so many seconds."""

    def waiting(word, value, seconds, spin_s=0.0, fd=-1):
        deadline = time.monotonic_ns() + int(seconds * 1e9)
        return library.evolve_wait(word, value, int(spin_s * 1e9), deadline, fd)

    return waiting


RUNNER = """
import sys
from evolve.worker.ipc import native
from evolve.worker.ipc.signals import Calls, Signals
library, signals = native.load(sys.argv[1]), Signals(int(sys.argv[2]))
for line in sys.stdin:
    sequence, seconds, spin_s = map(float, line.split())
    print("ready", flush=True)
    begun = signals.await_go(library, int(sequence), spin_s, seconds)
    if begun:
        calls = Calls(signals, library, int(sequence), spin_s, seconds)
        calls.tell([int(sequence), 7])
        signals.finish(library, int(sequence), calls.end(), 0.5)
    print(begun, flush=True)
"""


class Runner:
    """Another process, which waits for windows to begin and says at once that they are done."""

    def __init__(self, path, signals):
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, path, str(signals.fd)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            pass_fds=[signals.fd],
        )  # fmt: skip

    def awaits(self, sequence, seconds=20.0, spin_s=0.0):
        print(sequence, seconds, spin_s, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == "ready\n"

    def has_begun(self):
        return self.process.stdout.readline() == "True\n"

    @property
    def cpu_s(self):
        clock = (~self.process.pid << 3) | 2
        return time.clock_gettime(clock)


@pytest.fixture
def runner(path):
    signals = Signals()
    runner = Runner(path, signals)
    yield signals, runner
    runner.process.kill()
    runner.process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("spin_s", [0.0, 20.0])
def test_a_window_that_one_process_begins_is_seen_and_answered_by_another(
    library, wait, runner, spin_s
):
    signals, other = runner
    for sequence in (1, 2, 3):
        other.awaits(sequence, spin_s=spin_s)
        assert wait(signals.done, sequence, 0.05) == LATE  # it has not begun
        library.evolve_signal(signals.go, sequence)
        assert wait(signals.done, sequence, 20.0, spin_s=spin_s) == SEEN
        assert other.has_begun()
        assert signals.answer() == (pytest.approx(0.5), (sequence, 7))


@pytest.mark.slow
def test_a_window_of_another_number_is_not_the_one_that_is_waited_for(library, runner):
    signals, other = runner
    library.evolve_signal(signals.go, 1)
    other.awaits(2, seconds=0.2)
    assert not other.has_begun()
    assert signals.answer() == (0.0, ())


@pytest.mark.slow
def test_who_sleeps_for_a_window_uses_no_core(library, runner):
    signals, other = runner
    other.awaits(1)
    before = other.cpu_s
    time.sleep(1.0)
    assert other.cpu_s - before < 0.2
    library.evolve_signal(signals.go, 1)
    assert other.has_begun()


@pytest.mark.parametrize("spin_s", [0.0, 20.0])
def test_a_wait_ends_at_its_deadline(wait, spin_s):
    signals = Signals()
    start = time.monotonic()
    assert wait(signals.done, 1, 0.2, spin_s) == LATE
    assert 0.2 <= time.monotonic() - start < 2.0


@pytest.mark.parametrize("spin_s", [0.0, 20.0])
@pytest.mark.parametrize("ends", [False, True], ids=["it speaks", "it has ended"])
def test_a_wait_ends_when_the_other_process_speaks_or_ends(wait, spin_s, ends):
    signals = Signals()
    ours, theirs = socket.socketpair()
    speaking = threading.Timer(0.1, theirs.close if ends else lambda: theirs.send(b"!"))
    speaking.start()
    start = time.monotonic()
    assert wait(signals.done, 1, 20.0, spin_s, ours.fileno()) == SPOKE
    assert time.monotonic() - start < 10.0
    speaking.join()
    for one in (ours, theirs):
        one.close()


def test_what_is_done_is_done_though_the_process_has_spoken_too(library, wait):
    signals = Signals()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"!")
        library.evolve_signal(signals.done, 1)
        assert wait(signals.done, 1, 1.0, fd=ours.fileno()) == SEEN


@pytest.mark.quiet
def test_who_sleeps_is_woken_and_does_not_look_now_and_then(library, wait):
    """It looks once a millisecond by itself; there and back would take two."""
    signals, rounds = Signals(), 200

    def answer():
        for sequence in range(1, rounds + 1):
            assert wait(signals.go, sequence, 20.0) == SEEN
            library.evolve_signal(signals.done, sequence)

    other = threading.Thread(target=answer)
    other.start()
    took = []
    for sequence in range(1, rounds + 1):
        start = time.perf_counter()
        library.evolve_signal(signals.go, sequence)
        assert wait(signals.done, sequence, 20.0) == SEEN
        took.append(time.perf_counter() - start)
    other.join()
    assert statistics.median(took) < 0.0007


def test_a_block_may_have_as_many_outputs_as_the_page_has_words_and_no_more(library, wait):
    signals = Signals()
    most = list(range(MAX_ADDRESSES))
    calls = Calls(signals, library, 1, 0.0, 20.0)
    calls.tell(most)
    signals.finish(library, 1, calls.end(), 0.25)
    assert wait(signals.done, 1, 0.0) == SEEN
    assert signals.answer() == (0.25, tuple(most))
    with pytest.raises(ValueError, match="more outputs"):
        calls.tell([0])
    assert signals.answer() == (0.25, tuple(most))
    assert 8 * Signals.word(MAX_ADDRESSES - 1) + 8 == SIZE
    with pytest.raises(ValueError, match="more outputs"):
        Signals.word(MAX_ADDRESSES)  # which the judge would read beyond the page


@pytest.mark.parametrize("filling", [b"\xff", b"\x7f", b"\x80"])
def test_of_a_page_full_of_anything_no_more_is_read_than_it_holds(filling):
    signals = Signals()
    with mmap.mmap(signals.fd, SIZE) as page:
        page[:] = SIZE * filling
        seconds, addresses = signals.answer()
    assert isinstance(seconds, float)
    assert len(addresses) <= MAX_ADDRESSES
    assert filling != b"\x7f" or len(addresses) == MAX_ADDRESSES


def test_nobody_makes_the_page_smaller_under_the_other():
    with pytest.raises(PermissionError):
        os.ftruncate(Signals().fd, 0)


POOL = 1 << 32


@pytest.fixture
def reading(library):
    """Reads pieces of outputs at addresses, of a pool of 1 MiB, as the library does in a window."""

    def read(*addresses, start=0, length=64):
        signals, into = Signals(), (ctypes.c_uint8 * length)()
        Calls(signals, library, 1, 0.0, 20.0).tell(addresses)
        pieces = (native.Piece * len(addresses))()
        for at, piece in enumerate(pieces):
            piece.word, piece.start, piece.length = Signals.word(at), start, length
            piece.to = ctypes.addressof(into)
        asked = native.WindowArguments(
            page=signals.address, pieces=pieces, count=len(addresses), pool=POOL, pool_bytes=MB
        )
        return library.evolve_read(ctypes.byref(asked))

    return read


@pytest.mark.parametrize(
    ("address", "start", "length"),
    [
        (0, 0, 64),
        (POOL - 1, 0, 64),
        (POOL - 64, 0, 64),
        (POOL + MB - 63, 0, 64),
        (POOL + MB, 0, 64),
        (POOL + MB - 128, 65, 64),
        (-1, 0, 64),
        (-POOL, 0, 64),
        (2**63 - 1, 0, 64),
        (-(2**63), 0, 64),
        (2**63 - 64, 2**62, 2**20),
        (POOL, 0, MB + 1),
        (POOL, -1, 64),
    ],
)
def test_an_output_outside_of_a_runners_memory_is_not_read(reading, address, start, length):
    """No GPU is asked: this is seen before."""
    assert reading(address, start=start, length=length) == ASTRAY


OFFSETS = """
#include "{source}"
#include <stdio.h>
#define SHOW(kind, field) printf("%s %zu\\n", #field, offsetof(struct kind, field));
int main(void) {{
{shown}
  printf("%zu %zu %d %d %d %d\\n", sizeof(struct piece), sizeof(struct window), SEEN, LATE, ASTRAY,
         DRIVER);
}}
"""


def test_both_sides_of_the_library_lay_out_a_window_alike(tmp_path):
    kinds = {"piece": native.Piece, "window": native.WindowArguments}
    fields = [(kind, name) for kind, of in kinds.items() for name, _ in of._fields_]
    shown = "\n".join(f"  SHOW({kind}, {name})" for kind, name in fields)
    source, program = tmp_path / "offsets.c", tmp_path / "offsets"
    source.write_text(OFFSETS.format(source=native.SOURCE, shown=shown))
    subprocess.run(
        ["cc", str(source), "-o", str(program), "-ldl", "-lpthread"], check=True, timeout=60
    )
    *lines, last = subprocess.check_output([str(program)], text=True).splitlines()
    assert lines == [f"{name} {getattr(kinds[kind], name).offset}" for kind, name in fields]
    sizes = [ctypes.sizeof(kind) for kind in kinds.values()]
    assert last == " ".join(map(str, [*sizes, SEEN, LATE, ASTRAY, native.DRIVER]))


STEP = 2 * MB


@pytest.fixture
def pool(tmp_path):
    """The allocator of a runner, over a pool of eight steps; of a library of its own."""
    library = native.load(native.build(tmp_path))
    library.evolve_allocate.restype = ctypes.c_void_p
    library.evolve_allocate.argtypes = (ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    library.evolve_free.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
    library.evolve_pool(POOL, 8 * STEP + 1)
    return library


def test_a_pool_hands_out_all_of_its_memory_and_then_none(pool):
    blocks = [pool.evolve_allocate(STEP, 0, None) for _ in range(8)]
    assert sorted(blocks) == [POOL + at * STEP for at in range(8)]
    assert pool.evolve_allocate(1, 0, None) is None
    for block in blocks[2:5]:
        pool.evolve_free(block, STEP, 0, None)
    assert pool.evolve_allocate(3 * STEP + 1, 0, None) is None
    assert pool.evolve_allocate(2 * STEP + 1, 0, None) == blocks[2]


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3 * STEP)), max_size=60))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_blocks_of_a_pool_never_overlap_nor_leave_it(pool, asked):
    pool.evolve_pool(POOL, 8 * STEP)
    living = {}
    for frees, size in asked:
        if frees and living:
            block, size = living.popitem()
            pool.evolve_free(block, size, 0, None)
            continue
        block = pool.evolve_allocate(size, 0, None)
        if block is None:
            continue
        assert POOL <= block <= block + size <= POOL + 8 * STEP
        assert all(block + size <= other or other + its <= block for other, its in living.items())
        living[block] = size
    for block, size in living.items():
        pool.evolve_free(block, size, 0, None)


def test_no_compiler_is_a_message_that_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(EvaluatorUnavailable, match=r"C compiler.*apt-get install gcc.*CC"):
        native.build(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(EvaluatorUnavailable, match="CC"):
        native.build(tmp_path)


def test_a_compiler_that_fails_is_quoted(tmp_path, monkeypatch):
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'no headers here' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(EvaluatorUnavailable, match=r"broken-cc.*no headers here"):
        native.build(tmp_path)
