"""Evaluations under way at once, of which each takes much of the device's room.

Invariants:
- all get their verdicts, whatever waits for what: for room, a place to be timed, the lock;
- so does one that the evaluator failed under, which is judged again alone meanwhile;
- a candidate's own words get it judged again only where somebody else was there, and before it has
  been timed; what that costs is its own;
- where processes that are none of ours have the memory, it has no verdict (`no_room`).
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.core.evaluation import DEVICE_OOM, Fidelity, Status
from evolve.worker.base.faults import CandidateFault, tells_of_a_full_device
from evolve.worker.base.infra import InfraFault
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.judge.judge import Judge
from tests.worker.serving import HONEST_CPP, RELU_TASK, forward

MB = 1 << 20


class NarrowDevice(CpuDevice):
    """Has room for two that are checked at once, or for one that is timed."""

    pool_bytes = 20 * MB
    room = 96 * MB
    timing_slots = 1


class FailsOnce:
    """A method under which the evaluator fails for one source, the first time."""

    def __init__(self, method, victim: str) -> None:
        self._method = method
        self._victims = [victim]

    def __call__(self, task, candidate, *about):
        if candidate is not None and candidate.source in self._victims:
            self._victims.remove(candidate.source)
            raise InfraFault("a fault of ours")
        return self._method(task, candidate, *about)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_get_their_verdicts_also_one_that_is_judged_again_alone(tmp_path, capsys):
    judge = Judge(NarrowDevice(), tmp_path)
    sources = [f"{HONEST_CPP}\n# {number}\n" for number in range(5)]
    keeper = judge._timekeeper
    keeper.time = FailsOnce(keeper.time, sources[1])
    try:
        with ThreadPoolExecutor(len(sources)) as threads:
            verdicts = list(
                threads.map(
                    lambda source: judge.evaluate(RELU_TASK, source, Fidelity.SCREEN, {}),
                    sources,
                )
            )
    finally:
        judge.close()
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * len(sources)
    again = ["judged_again" in [label.name for label in verdict.labels] for verdict in verdicts]
    assert again == [False, True, False, False, False]
    assert "judged again, alone: the evaluator failed: a fault of ours" in capsys.readouterr().err


def said(free: str, asked: str = "1.47 GiB") -> str:
    return (
        f"CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 139.80 GiB "
        f"of which {free} is free."
    )


SHORT = forward(f"raise torch.OutOfMemoryError({said('357.88 MiB')!r})")


def labels(verdict) -> set[str]:
    return {label.name for label in verdict.labels}


class AskedDevice(NarrowDevice):
    """Counts how often it is asked whether it works."""

    asked = 0

    def require_health(self) -> None:
        self.asked += 1


@pytest.fixture
def judge(tmp_path):
    judge = Judge(AskedDevice(), tmp_path)
    yield judge
    judge.close()


@pytest.fixture
def neighbour(judge):
    """Has some of the room until somebody waits for it."""
    came = threading.Event()

    def stay():
        with judge._budget.taken(1):
            came.set()
            while not judge._budget._queue:
                time.sleep(0.01)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(stay)
        assert came.wait(5)
        yield
        judge._budget._queue.append(None)  # where nobody ever waited


@pytest.mark.slow
@pytest.mark.parametrize(("free", "is_theirs"), [("357.88 MiB", False), ("64.00 GiB", True)])
def test_who_finds_no_memory_on_a_device_that_others_fill_is_judged_again_alone(
    judge, neighbour, free, is_theirs
):
    """A graph's memory lies beside what a process has been given, where nobody keeps any free."""
    short = forward(f"raise torch.OutOfMemoryError({said(free)!r})")
    verdict = judge.evaluate(RELU_TASK, short, Fidelity.SCREEN, {})
    assert verdict.status is Status.OOM, verdict.feedback
    assert ("judged_again" in labels(verdict)) != is_theirs
    assert DEVICE_OOM not in labels(verdict)


@pytest.mark.slow
def test_a_device_is_asked_whether_it_works_after_each_violent_end(judge, neighbour):
    verdict = judge.evaluate(RELU_TASK, SHORT, Fidelity.SCREEN, {})
    assert "judged_again" in labels(verdict)
    assert judge.device.asked == 2


@pytest.mark.slow
def test_nobody_talks_himself_into_a_second_judgement_where_nobody_else_was_there(judge):
    verdict = judge.evaluate(RELU_TASK, SHORT, Fidelity.SCREEN, {})
    assert verdict.status is Status.OOM, verdict.feedback
    assert "judged_again" not in labels(verdict)


class Fails:
    """Timing that ends like this, the first times, after so many seconds of the device."""

    def __init__(self, method, *errors: Exception, seconds: float) -> None:
        self._method, self._errors, self._seconds = method, [*errors], seconds

    def __call__(self, task, candidate, opponents, fidelity, timing, target_speedups):
        if not self._errors:
            return self._method(task, candidate, opponents, fidelity, timing, target_speedups)
        timing.device_time_s = timing.spent_s["lock"] = self._seconds
        raise self._errors.pop()


class UsedDevice(NarrowDevice):
    """A process that is none of ours uses it too."""

    def others(self) -> frozenset[int]:
        return frozenset({1})


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "is_believed"), [(0.0, True), (0.5, False)])
def test_nobody_is_convicted_even_alone_of_memory_that_a_foreign_process_has(
    tmp_path, seconds, is_believed
):
    judge = Judge(UsedDevice(), tmp_path)
    faults = [CandidateFault(Status.OOM, said("357.88 MiB")) for _ in range(2)]
    judge._timekeeper.time = Fails(None, *faults, seconds=seconds)
    try:
        verdict = judge.evaluate(RELU_TASK, forward("return right(x)"), Fidelity.SCREEN, {})
    finally:
        judge.close()
    assert verdict.status is (Status.INFRA if is_believed else Status.OOM), verdict.feedback
    assert (DEVICE_OOM in labels(verdict)) == is_believed
    assert not verdict.is_worth_another_try


@pytest.mark.parametrize(
    ("text", "is_full"),
    [
        (said("357.88 MiB"), True),
        (said("64.00 GiB"), False),
        (said("20.00 MiB", "20.00 MiB"), True),  # rounded, both of them
        (said("0 bytes", "2.00 MiB"), True),
        (said("20.00 GiB", "16384.00 GiB"), False),  # more than there is
        ("AcceleratorError: CUDA error: out of memory", True),
        (f"line 3 in forward: {'f(x); ' * 1000}\n{said('357.88 MiB')}", True),
        (f"{said('64.00 GiB')} ({said('357.88 MiB')})", True),
        ("Tried to allocate 9 GiB, and " + "so on " * 100 + "of which 0 bytes is free", False),
        ("CUDA out of memory.", False),
        ("Tried to allocate " * 400_000, False),
    ],
)
def test_a_full_device_is_what_torch_says_of_one(text, is_full):
    started = time.monotonic()
    assert tells_of_a_full_device(CandidateFault(Status.OOM, text), 80 << 30) == is_full
    assert not tells_of_a_full_device(CandidateFault(Status.RUNTIME_EXCEPTION, text), 80 << 30)
    assert time.monotonic() - started < 10


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "is_believed"), [(0.0, True), (0.5, False)])
def test_who_has_been_timed_gets_no_second_times_by_what_he_says(
    judge, neighbour, seconds, is_believed
):
    keeper = judge._timekeeper
    fault = CandidateFault(Status.OOM, said("357.88 MiB"))
    keeper.time = Fails(keeper.time, fault, seconds=seconds)
    verdict = judge.evaluate(RELU_TASK, forward("return right(x)"), Fidelity.SCREEN, {})
    assert verdict.status is (Status.CORRECT if is_believed else Status.OOM), verdict.feedback
    assert ("judged_again" in labels(verdict)) == is_believed


@pytest.mark.slow
def test_what_a_first_judgement_has_cost_is_charged_with_the_second(judge):
    keeper = judge._timekeeper
    keeper.time = Fails(keeper.time, InfraFault("a fault of ours"), seconds=100.0)
    verdict = judge.evaluate(RELU_TASK, forward("return right(x)"), Fidelity.SCREEN, {})
    assert verdict.status is Status.CORRECT, verdict.feedback
    assert verdict.device_time_s > 100
    assert verdict.durations_s["timing_lock"] >= 100
    assert {"timing_opening", "smoke"} < set(verdict.durations_s)
