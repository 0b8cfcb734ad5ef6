"""Times against the device's ceilings.

Invariants:
- a time in which the outputs cannot even be written is refused, not rewarded;
- a time below the reference's own cost is labelled, and stays;
- an ordinary time has a share and a basis, in the evaluation and in words.
"""

import pytest

from evolve.core.evaluation import CaseResult, CaseSamples, Status
from evolve.core.measurement import Interval
from evolve.core.task import Task
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.processes.host_locks import HostLock
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.prepared_task import PreparedTasks
from evolve.worker.timing.results import Timing
from evolve.worker.timing.speed_of_light import BEATS, SpeedOfLight
from tests.worker.judging import task_source
from tests.worker.serving import HONEST_CPP

pytestmark = pytest.mark.quiet

N = 256
PRODUCT = task_source("a @ b", f"[torch.randn({N}, {N}), torch.randn({N}, {N})]", "a, b")


@pytest.fixture(scope="module")
def warm():
    return PreparedTasks(CpuDevice()).get(Task(name="product", source=PRODUCT))


@pytest.fixture(scope="module")
def speed_of_light(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:  # a lock of its own
        patch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("locks")))
        device = CpuDevice()
        return SpeedOfLight(device, DeviceLock(device, HostLock("cpu")))


def judged(speed_of_light, warm, seconds):
    candidate = Candidate(HONEST_CPP)
    (case,) = warm.timed
    example = case.check("task", 0).expected.reference[0]
    name = case.case.name
    candidate.layouts[name] = (TensorAt(example.dtype, (N, N), (N, 1), 4096),)
    time_ms = Interval(1e3 * seconds, 0.9e3 * seconds, 1.1e3 * seconds)
    row = CaseResult(
        name=name, weight=1.0, timed=True, passed=True, times_ms={"candidate": time_ms}
    )
    timing = Timing(cases={name: row}, samples={name: CaseSamples(calls_per_block=64)})
    return speed_of_light.judge(warm, candidate, timing), timing


def test_outputs_that_cannot_have_been_written_are_refused(speed_of_light, warm):
    with pytest.raises(CandidateFault, match="faster than the outputs can be written") as caught:
        judged(speed_of_light, warm, 1e-9)
    assert caught.value.status is Status.TIMING_UNBOUNDED


def test_a_time_below_the_references_cost_is_labelled(speed_of_light, warm):
    _, ordinary = judged(speed_of_light, warm, 1.0)
    (row,) = ordinary.cases.values()
    light, timing = judged(speed_of_light, warm, 0.7 * row.speed_of_light)  # of 1 s: the floor
    assert light.beats
    assert [label.name for label in timing.labels] == [BEATS]
    assert light.share == pytest.approx(1 / 0.7)


def test_an_ordinary_time_has_a_share_with_its_basis(speed_of_light, warm):
    light, timing = judged(speed_of_light, warm, 1.0)
    (row,) = timing.cases.values()
    assert row.speed_of_light == pytest.approx(light.share)
    assert 0 < light.share < 0.1
    assert row.bound == "fp32 arithmetic"
    assert not light.beats
    assert not timing.labels
    assert "TFLOP/s" in light.said[row.name]
