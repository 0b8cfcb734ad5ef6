"""Several sittings made ready at once, one timed at a time.

Invariants:
- while one sitting is timed, the processes of all others stand still;
- work that a stopped process has left on the device voids a sitting, and is nobody else's fault.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.guard import descendants
from evolve.worker.referee import Referee
from tests.worker.serving import HONEST_CPP, RELU_TASK


class TwoSeats(CpuDevice):
    """Notes how many processes stand while a sitting is timed and another one waits."""

    seats = 2

    def __init__(self, idle: bool) -> None:
        super().__init__()
        self.standing: list[int] = []
        self._idle = idle

    def is_idle(self) -> bool:
        states = [state(pid) for pid in descendants(os.getpid())]
        self.standing.append(states.count("T"))
        return self._idle


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def two_verdicts(device, folder):
    referee = Referee(device, folder)
    try:
        with ThreadPoolExecutor(2) as pool:
            sources = [HONEST_CPP, HONEST_CPP + "\n# another\n"]
            judged = [
                pool.submit(referee.evaluate, RELU_TASK, source, Fidelity.SCREEN, {})
                for source in sources
            ]
            return [found.result(200) for found in judged]
    finally:
        referee.close()


@pytest.mark.slow
def test_who_waits_for_his_turn_stands_while_another_is_timed(tmp_path):
    device = TwoSeats(idle=True)
    verdicts = two_verdicts(device, tmp_path)
    assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
    assert device.standing, "the two never waited for each other"
    assert min(device.standing) >= 2  # both sides of the other sitting


@pytest.mark.slow
def test_a_device_that_stays_busy_is_the_judges_own_fault(tmp_path):
    verdicts = two_verdicts(TwoSeats(idle=False), tmp_path)
    assert {verdict.status for verdict in verdicts} <= {Status.CORRECT, Status.INFRA}
    assert any("left running" in v.feedback for v in verdicts if v.status is Status.INFRA)
