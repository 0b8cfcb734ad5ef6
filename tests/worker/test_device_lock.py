"""Several rounds made ready at once, one timed at a time.

Invariants:
- while one round is timed, the processes of all others stand still, with what they have started;
- who keeps the device busy is convicted, by its work in its own turn as well as in another's;
- where others use the device too, that is found out when it is alone, by taking it away;
- a neighbour who does so changes nobody else's verdict;
- nobody's timing waits for a source to be executed and compiled, nor is disturbed by it; and no
  deadline comes nearer while a process is stopped.

The window's own way to have one side work alone is the GPU's; what is busy is told by a process's
name, as a GPU would tell it by how long it takes to answer.
"""

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest
import torch

from evolve.core.evaluation import DEVICE_BUSY, Fidelity, Status
from evolve.languages.cpp import CPP
from evolve.worker.base.faults import BusyFault, CandidateFault
from evolve.worker.base.infra import CrowdedFault, OccupiedFault
from evolve.worker.judge.judge import Judge
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.processes.runner_process import close_all
from evolve.worker.sandbox.supervisor import descendants
from evolve.worker.session.exclusive_device import DeviceLock
from tests.worker.launching import Borrowing
from tests.worker.serving import HONEST_CPP, RELU_TASK, TIMED, forward
from tests.worker.sharing import shared
from tests.worker.turns import TwoSeats, states, told

pytestmark = pytest.mark.quiet


class NeverIdle(TwoSeats):
    def is_idle(self) -> bool:
        return False


def named(name: str) -> str:
    """Statements that give a candidate's process a name."""
    return f"import ctypes\nctypes.CDLL(None).prctl(15, b'{name}')"


NAMES = "first", "second"
NAMED = [forward("return right(x)", named(name)) for name in NAMES]
HOGGING = named("hogging")
HOG = forward("return right(x)", HOGGING)
# From its tenth call on it has a child that works for it, and wakes it up.
PARENT = forward(
    f"""
self.n = getattr(self, "n", 0) + 1
if self.n == 10 and os.fork() == 0:
    {HOGGING.replace(chr(10), "; ")}
    while True:
        os.kill(os.getppid(), signal.SIGCONT)
        time.sleep(0.002)
return right(x)
"""
)


@pytest.fixture(autouse=True)
def _lock_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)


@pytest.fixture
def verdicts(tmp_path):
    """Judges sources at once on a device, in order."""

    def verdicts_on(device, *sources):
        judge = Judge(device, tmp_path / "cache")
        try:
            with ThreadPoolExecutor(len(sources)) as pool:
                judged = [
                    pool.submit(judge.evaluate, RELU_TASK, source, Fidelity.SCREEN, {})
                    for source in sources
                ]
                return [found.result(200) for found in judged]
        finally:
            judge.close()

    return verdicts_on


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param(True, id="in its own turn"),
        pytest.param(False, id="in another's", marks=pytest.mark.slow),
    ],
)
def test_who_keeps_the_device_busy_is_convicted(verdicts, stops):
    (verdict,) = verdicts(TwoSeats(stops), HOG)
    assert verdict.status is Status.TIMING_UNBOUNDED, verdict.feedback
    assert "busy" in verdict.feedback


class UsedDevice(TwoSeats):
    """Others use it too: another judge's processes, say, which have been there all the time."""

    def others(self) -> frozenset[int]:
        return frozenset({1})


class OccupiedDevice(UsedDevice):
    """They keep it busy."""

    def is_idle(self) -> bool:
        return False


@pytest.mark.slow  # its decision alone is in test_whose_work_it_was_shows
def test_who_keeps_a_device_busy_that_others_use_too_is_convicted_when_it_is_alone(verdicts):
    (verdict,) = verdicts(UsedDevice(), HOG)
    assert verdict.status is Status.TIMING_UNBOUNDED, verdict.feedback
    (first,) = [label for label in verdict.labels if label.name == "judged_again"]
    assert "others were there" in first.evidence


@pytest.mark.slow
def test_nobody_is_convicted_of_what_others_do_and_nobody_asks_again_and_again(
    verdicts, monkeypatch
):
    turns = Mock(wraps=HostLock.exclusive)
    monkeypatch.setattr(HostLock, "exclusive", lambda *given: turns(*given))
    (verdict,) = verdicts(OccupiedDevice(), forward("return right(x)"))
    assert verdict.status is Status.INFRA, verdict.feedback
    assert DEVICE_BUSY in {label.name for label in verdict.labels}
    assert not verdict.is_worth_another_try
    assert turns.call_count == 1 + 3 + 1  # of the reference; beside others of ours; alone


@pytest.mark.slow
@pytest.mark.parametrize("guilty", [HOG, PARENT], ids=["leaves work running", "has a child"])
def test_a_neighbour_who_keeps_the_device_busy_changes_no_verdict_but_its_own(verdicts, guilty):
    found = verdicts(TwoSeats(stops=False), guilty, HONEST_CPP, HONEST_CPP + "\n# another\n")
    assert [verdict.status for verdict in found] == [
        Status.TIMING_UNBOUNDED,
        Status.CORRECT,
        Status.CORRECT,
    ], [verdict.feedback for verdict in found]


class Named(TwoSeats):
    """Notes which of the two candidates of `NAMED` have processes, and which of those go on."""

    def __init__(self) -> None:
        super().__init__()
        self.present: list[set[str]] = []
        self.going_on: list[set[str]] = []

    def is_idle(self) -> bool:
        found = [(name, state) for name, state in map(told, descendants(os.getpid()))
                 if name in NAMES and state not in "ZX"]  # fmt: skip
        self.present.append({name for name, _ in found})
        self.going_on.append({name for name, state in found if state in "RS"})
        return super().is_idle()


@pytest.mark.slow
def test_who_waits_for_his_turn_stands_while_another_is_timed(verdicts):
    device = Named()
    found = verdicts(device, *NAMED)
    assert {verdict.status for verdict in found} == {Status.CORRECT}
    assert set(NAMES) in device.present
    assert set(NAMES) not in device.going_on


@pytest.mark.slow
def test_where_the_device_is_busy_whenever_others_are_there_each_is_judged_alone(verdicts):
    class BusyBesideOthers(Named):
        def is_idle(self) -> bool:
            return super().is_idle() and self.present[-1] != set(NAMES)

    device = BusyBesideOthers()
    found = verdicts(device, *NAMED)
    assert {verdict.status for verdict in found} == {Status.CORRECT}
    assert set(NAMES) in device.present


def started(launcher, source):
    """A runner with one call made."""
    arguments, inputs = shared({"init": [], "state": {}}), shared([torch.ones(4)])
    runner = launcher.start(CPP)
    runner.load("candidate", source, 20.0)
    runner.construct(0, 1, arguments, 20.0)
    for _ in range(10):
        runner.call(0, inputs, 20.0)
    return runner


def test_a_child_that_wakes_its_parent_up_is_stopped_with_it(launcher):
    with started(launcher, PARENT) as runner:
        assert runner.has_other_processes()
        runner.freeze()
        assert states(runner) == {"T"}
        runner.thaw()
        assert "T" not in states(runner)


def test_who_fails_alone_on_the_device_is_dead_before_the_next_has_it(launcher):
    device_lock = DeviceLock(TwoSeats(), HostLock("cpu"))
    with started(launcher, forward("return x + 1")) as mine, started(launcher, PARENT) as other:
        device_lock.add(mine)
        device_lock.add(other)
        with pytest.raises(CrowdedFault), device_lock.alone([mine]):  # who knows whose work it was
            assert states(other) == {"T"}
            raise BusyFault("busy")
        assert not mine.alive
        assert other.alive
        with pytest.raises(BusyFault), device_lock.alone([other]):
            raise BusyFault("busy")
        assert not other.alive


class Answers(UsedDevice):
    """What it answers when it is asked whether it is idle."""

    def __init__(self, answers) -> None:
        super().__init__()
        self.answers = answers

    def is_idle(self) -> bool:
        return next(self.answers)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        pytest.param(itertools.repeat(False), OccupiedFault, id="busy"),
        pytest.param(itertools.cycle([False, True, True]), OccupiedFault, id="busy at times"),
        pytest.param(
            itertools.chain([False, False], itertools.repeat(True)), BusyFault, id="idle at last"
        ),
    ],
)
def test_whose_work_it_was_shows_when_a_process_has_been_taken_away(launcher, answers, error):
    device_lock = DeviceLock(Answers(answers), HostLock("cpu"))
    with started(launcher, forward("return x + 1")) as mine:
        with pytest.raises(error), device_lock.alone([mine], settles=True):
            raise BusyFault("busy")
        assert not mine.alive


def test_nothing_is_found_out_while_others_of_ours_are_there(launcher):
    device_lock = DeviceLock(Answers(itertools.repeat(True)), HostLock("cpu"))
    with started(launcher, forward("return x + 1")) as mine, started(launcher, PARENT) as other:
        device_lock.add(mine)
        device_lock.add(other)
        with pytest.raises(CrowdedFault) as raised, device_lock.alone([mine], settles=True):
            raise BusyFault("busy")
        assert not isinstance(raised.value, OccupiedFault)


def test_processes_that_no_candidate_has_had_are_no_reason_to_doubt_whose_work_it_was(launcher):
    """Prefork processes and waiting references are there all the time, and are stopped too."""
    device_lock = DeviceLock(Answers(itertools.repeat(True)), HostLock("cpu"))
    device_lock._device.others = frozenset
    with started(launcher, forward("return x + 1")) as mine, launcher.start(CPP) as spare:
        device_lock.add(mine)
        device_lock.add(spare)
        with pytest.raises(BusyFault), device_lock.alone([mine]):
            assert states(spare) == {"T"}
            raise BusyFault("busy")
        assert not mine.alive
        assert states(spare) != {"T"}


def test_a_process_stands_still_in_turns_of_others_from_before_it_opens_the_device(launcher):
    class SlowToOpen(TwoSeats):
        opening = threading.Event()

        def prepare(self, process, all_queues=False):
            self.opened = process
            self.opening.set()
            time.sleep(0.5)

    device, lock = SlowToOpen(), HostLock("cpu")
    launcher, device_lock = Borrowing(launcher, device, lock=lock), DeviceLock(device, lock)
    launcher.register = device_lock.add
    with ThreadPoolExecutor(1) as threads:
        try:
            starting = threads.submit(launcher.start, CPP)
            assert device.opening.wait(20)
            with device_lock.alone():
                assert states(device.opened) == {"T"}
                time.sleep(0.7)
                assert not starting.done()  # it is given memory when nothing is timed
            starting.result(20)
        finally:
            launcher.close()


def test_who_sits_down_while_another_does_is_not_forgotten():
    class Person:
        """Who looks whether he is alive lets others go on."""

        @property
        def alive(self):
            time.sleep(0.001)
            return True

    device_lock, people = DeviceLock(TwoSeats(), HostLock("cpu")), [Person() for _ in range(20)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(device_lock.add, people))
    assert device_lock._processes == set(people)


def test_what_a_neighbour_left_running_is_waited_for_and_then_void(launcher):
    device_lock = DeviceLock(NeverIdle(), HostLock("cpu"))
    with started(launcher, forward("return x + 1")) as other:
        with device_lock.alone():
            pass
        device_lock.add(other)
        with pytest.raises(CrowdedFault, match="leftover work"), device_lock.alone():
            pass


def test_of_rounds_in_one_turn_those_that_are_not_timed_stand(launcher):
    device_lock = DeviceLock(TwoSeats(), HostLock("cpu"))
    with (
        started(launcher, forward("return x + 1")) as one,
        started(launcher, PARENT) as other,
        device_lock.alone([one, other]) as turn,
    ):
        for timed, waiting in ((one, other), (other, one)):
            with turn.only([timed]):
                assert states(waiting) == {"T"}
                assert "T" not in states(timed)
            assert "T" not in states(waiting)


class SeveralRounds(TwoSeats):
    """Three rounds of a verification in a turn, with processes of the reference that stay."""

    rounds = 3
    references = 2

    def __init__(self) -> None:
        super().__init__()
        self.warm_bytes = 1 << 50  # on the CPU a process counts with all that it may take


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param("time.sleep(0.002)\nreturn right(x)", Status.CORRECT, id="right"),
        pytest.param(
            f"{TIMED}\nreturn right(x) * (1 + ('_run' in names))", Status.WRONG_VALUE, id="wrong"
        ),
    ],
)
@pytest.mark.slow
def test_several_rounds_in_one_turn_come_to_the_same_verdict(tmp_path, body, status):
    device = SeveralRounds()
    judge = Judge(device, tmp_path / "cache")
    try:
        found = judge.evaluate(RELU_TASK, forward(body), Fidelity.VERIFY, {})
        assert found.status is status, found.feedback
        assert max(device.standing) >= 2 * 2 + 1  # of the other two rounds, and one side of this
        if status is Status.CORRECT:
            times = found.samples["default"]["ms"]
            assert {side: len(times[side]) for side in times} == {"candidate": 8, "eager": 8}
        kept = judge._timekeeper._references.leave()  # outputs are judged when the turn is over
        close_all(kept)
        assert len(kept) == 2
    finally:
        judge.close()


class Aside(TwoSeats):
    """A core is left for the clock."""

    compiles_aside = True


def test_a_source_that_takes_long_to_compile_holds_up_nobody_and_disturbs_nobody(tmp_path):
    device = Aside()
    judge = Judge(device, tmp_path / "cache")
    endless = forward("return right(x)", "time.sleep(1000)")
    with ThreadPoolExecutor(1) as pool:
        try:
            compiling = pool.submit(judge.evaluate, RELU_TASK, endless, Fidelity.SCREEN, {})
            while not (processes := [*judge._device_lock._processes]):
                time.sleep(0.05)
            with judge._device_lock.alone():
                assert states(processes[0]) == {"T"}
            assert "T" not in states(processes[0])
            assert not compiling.done()
        finally:
            judge.close()


def test_time_in_which_a_process_is_stopped_is_not_its_own(launcher):
    with launcher.start(CPP) as runner, ThreadPoolExecutor(1) as pool:
        loading = pool.submit(runner.load, "candidate", forward("return x", "time.sleep(0.5)"), 1.0)
        time.sleep(0.1)
        runner.freeze()
        time.sleep(1.0)
        runner.thaw()
        loading.result(5)
    with launcher.start(CPP) as runner, pytest.raises(CandidateFault, match="longer than"):
        runner.load("candidate", forward("return x", "time.sleep(5)"), 0.5)
