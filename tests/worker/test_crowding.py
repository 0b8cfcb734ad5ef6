"""Evaluations under way at once, of which each takes much of the device's room.

Invariants:
- all get their verdicts, whatever waits for what: for room, a place to be timed, the lock;
- so does one that the evaluator failed under, which is judged again alone meanwhile.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from evolve.core.evaluation import NO_ROOM, Fidelity, Status
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.faults import InfraFault
from evolve.worker.referee import Referee
from tests.worker.serving import HONEST_CPP, RELU_TASK, forward

MB = 1 << 20


class NarrowDevice(CpuDevice):
    """Has room for two that are checked at once, or for one that is timed."""

    pool_bytes = 20 * MB
    room = 96 * MB
    seats = 1


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
    referee = Referee(NarrowDevice(), tmp_path)
    sources = [f"{HONEST_CPP}\n# {number}\n" for number in range(5)]
    keeper = referee._timekeeper
    keeper.time = FailsOnce(keeper.time, sources[1])
    try:
        with ThreadPoolExecutor(len(sources)) as threads:
            verdicts = list(
                threads.map(
                    lambda source: referee.evaluate(RELU_TASK, source, Fidelity.SCREEN, {}),
                    sources,
                )
            )
    finally:
        referee.close()
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * len(sources)
    again = ["judged_again" in [label.name for label in verdict.labels] for verdict in verdicts]
    assert again == [False, True, False, False, False]
    assert "judged again, alone: the evaluator failed: a fault of ours" in capsys.readouterr().err


@pytest.mark.parametrize(("free", "is_theirs"), [("357.88 MiB", False), ("64.00 GiB", True)])
def test_who_finds_no_memory_on_a_device_that_others_fill_is_judged_again_alone(
    tmp_path, free, is_theirs
):
    """A graph's memory lies beside what a process has been given, where nobody keeps any free."""
    said = (
        "CUDA out of memory. Tried to allocate 1.47 GiB. GPU 0 has a total capacity of 139.80 GiB "
        f"of which {free} is free."
    )
    short = forward(f"raise torch.OutOfMemoryError({said!r})")
    referee = Referee(NarrowDevice(), tmp_path)
    try:
        verdict = referee.evaluate(RELU_TASK, short, Fidelity.SCREEN, {})
    finally:
        referee.close()
    assert verdict.status is Status.OOM, verdict.feedback
    labels = {label.name for label in verdict.labels}
    assert ("judged_again" in labels) != is_theirs
    assert NO_ROOM not in labels
