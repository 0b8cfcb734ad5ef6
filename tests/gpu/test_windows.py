"""What a window itself costs, which is taken off every block.

Invariant: a block of no calls takes as long with memory that the process has just had as with fresh
memory, so none is made for it.
"""

from statistics import median

import pytest

from evolve.core.evaluation import Fidelity
from evolve.worker.device_cuda import CudaDevice
from evolve.worker.faults import CANDIDATE, EAGER
from evolve.worker.footprint import block_outputs
from evolve.worker.planning import planned
from evolve.worker.process import Needs
from evolve.worker.referee import Referee
from tests.gpu.programs import SMALL, TASK

ROUNDS = 16
NEAR = 0.06  # a window's cost drifts by as much within seconds


@pytest.fixture(scope="module")
def referee(tmp_path_factory):
    referee = Referee(CudaDevice(), tmp_path_factory.mktemp("cache"))
    yield referee
    referee.close()


@pytest.mark.parametrize("task", [TASK, SMALL], ids=["64 MB", "small"])
def test_memory_that_was_had_before_costs_a_window_as_much_as_fresh_memory(referee, task):
    device, warm = referee.device, referee.warm(task)
    own = referee._timekeeper._yardstick.layouts(warm)
    sides = {CANDIDATE: None, EAGER: None}
    (case,) = planned(warm, sides, own, device, Fidelity.SEARCH)
    layout, window = own[case.warm.case.name], device.window()
    again, fresh = [], []
    with referee.workshop.reference(
        warm, Needs(block_outputs(warm, device, Fidelity.SEARCH))
    ) as process:
        window.warm_up(process, case, layout, 0)
        with referee._seats.alone([process]), window._clock_cores():
            for number in range(ROUNDS):
                again.append(window.run(process, case, layout, number % 8, then_idle=True).idle)
                with (
                    device.share(case.warm.block(-1, case.calls)) as inputs,
                    window._core_of_timed(process),
                ):
                    fresh.append(window._idle(process, case, layout, inputs))
    had, new = median(again) * 1e6, median(fresh) * 1e6
    print(f"{case.calls} calls: {had:.0f} us with memory that was had, {new:.0f} with fresh memory")
    assert abs(had / new - 1) < NEAR
