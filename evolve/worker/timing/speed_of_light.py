"""How close a candidate comes to the device's limits, and impossible times."""

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolve.core.evaluation import CaseResult, Label, Status
from evolve.core.reference import CaseCost, OperationCost, ReferenceCost
from evolve.worker.base.faults import CANDIDATE, CandidateFault
from evolve.worker.base.feedback import bound
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import size_in_bytes
from evolve.worker.reference.task_module import task_lock
from evolve.worker.session.candidate_session import Candidate
from evolve.worker.session.exclusive_device import DeviceLock
from evolve.worker.session.prepared_task import PreparedCase, PreparedTask
from evolve.worker.timing.operation_times import MAX_ROWS, operation_times
from evolve.worker.timing.reference_cost import Cost, count_cost
from evolve.worker.timing.results import Timing
from evolve.worker.timing.roofline import Floor, Roofline

BEATS = "beats_reference_cost"
_TOLERANCE = 0.05  # of ceilings that are measured: a program at one may be a little beyond it


@dataclass(slots=True)
class Light:
    """The result: the share over all cases, a text for each, whether any beats its floor.

    `share` is the geometric mean of the cases' shares by their weights, `bytes_per_s` the rate of a
    copy by which the first case was rated.
    """

    share: float
    said: dict[str, str] = field(default_factory=dict)
    beats: bool = False
    bytes_per_s: float | None = None


class SpeedOfLight:
    """Compares times with floors from the reference's cost; ceilings are measured when needed."""

    def __init__(self, device: Device, device_lock: DeviceLock) -> None:
        self._roofline = Roofline(device.place, device_lock.alone)
        self._device_lock = device_lock
        self._lock = device_lock.lock
        self._costs: dict[tuple[str, int], Cost] = {}
        self._counting = threading.Lock()

    def cost(self, task: PreparedTask, case: PreparedCase) -> Cost:
        """Of one call of the reference, counted once in a session; takes the lock."""
        key = task.task.revision, case.index
        with self._counting:
            if key not in self._costs:
                with self._lock.shared(), task_lock:
                    model = case.case.model(case.model_seed)
                    inputs = list(case.inputs("task", 0).tree())
                    self._costs[key] = count_cost(case.case.task, model, inputs)
            return self._costs[key]

    def reference(self, task: PreparedTask, seconds: Mapping[int, float]) -> ReferenceCost:
        """What is known of the reference before any candidate; the device is ours alone meanwhile.

        Args:
            task: its models and inputs.
            seconds: of one call, by case.
        """
        accumulation = task.loaded.accumulation
        costs = {case.index: self.cost(task, case) for case in task.timed}
        kinds = {kind for cost in costs.values() for kind in cost.flops}
        rates: dict[str, float] = {}
        for kind in sorted(kinds):
            rates |= self._roofline.product_rates(kind, accumulation)
        cases = []
        for case in task.timed:
            calls = task.calls[case.index]
            floor = self._roofline.floor(costs[case.index], accumulation, calls)
            time_ms = 1e3 * seconds[case.index]
            cases.append(case_cost(case.case.name, time_ms, costs[case.index], floor,
                                   self._operations(case)))  # fmt: skip
        return ReferenceCost(cases=cases, flops_per_s=rates)

    def _operations(self, case: PreparedCase) -> list[OperationCost]:
        """Of one call in our own process."""
        with self._lock.shared(), task_lock:
            model = case.case.model(case.model_seed)
            inputs = list(case.inputs("task", 0).tree())
        with self._device_lock.alone(), task_lock:
            return operation_times(case.case.task, model, inputs)

    def judge(self, task: PreparedTask, candidate: Candidate, timing: Timing) -> Light:
        """Give every timed case its share, and label those that take less than their floor.

        Raises:
            CandidateFault: a time is shorter than writing the outputs takes.
        """
        costs = {case.case.name: self.cost(task, case) for case in task.timed}
        light = Light(share=math.nan)
        for name, cost in costs.items():
            calls = timing.samples[name].calls_per_block
            written = sum(map(size_in_bytes, candidate.layouts[name]))
            self._require_possible(timing.cases[name], written, calls)
            floor = self._roofline.floor(cost, task.loaded.accumulation, calls)
            self._rate(timing, name, cost, floor, light)
        light.share = _mean([timing.cases[name] for name in costs])
        return light

    def _require_possible(self, row: CaseResult, written: int, calls: int) -> None:
        """By the far end of the interval: noise must not refute a candidate."""
        most_s = row.times_ms[CANDIDATE].high / 1e3
        least_s = written / self._roofline.write_rate(written * calls)
        if most_s < least_s:
            raise CandidateFault(
                Status.TIMING_UNBOUNDED,
                f"case {row.name}: faster than the outputs can be written: {written} bytes in "
                f"{most_s * 1e6:.3g} us, where this device needs {least_s * 1e6:.3g} us",
            )

    def _rate(self, timing: Timing, name: str, cost: Cost, floor: Floor, light: Light) -> None:
        row = timing.cases[name]
        time_ms = row.times_ms[CANDIDATE]
        share = 1e3 * floor.seconds / time_ms.value
        timing.cases[name] = replace(row, speed_of_light=share, bound=floor.basis)
        light.bytes_per_s = light.bytes_per_s or floor.bytes_per_s
        light.said[name] = bound(
            time_s=time_ms.value / 1e3,
            moved_bytes=cost.moved_bytes,
            flops=sum(cost.flops.values()),
            bytes_per_s=floor.bytes_per_s,
            flops_per_s=floor.flops_per_s,
        )
        if time_ms.high < (1 - _TOLERANCE) * 1e3 * floor.seconds:
            light.beats = True
            timing.labels.append(
                Label(BEATS, f"case {name}: {time_ms.value:.4g} ms, the reference's {floor.basis} "
                             f"alone would take {1e3 * floor.seconds:.4g} ms")
            )  # fmt: skip


def case_cost(
    name: str, time_ms: float, cost: Cost, floor: Floor, operations: Sequence[OperationCost]
) -> CaseCost:
    """A case of the reference; of its operations a few, as shares of that time."""
    total_ms = sum(each.time_ms for each in operations)
    scale = time_ms / total_ms if total_ms else 1.0  # timed one by one they take longer together
    timed = [replace(each, time_ms=each.time_ms * scale) for each in operations]
    return CaseCost(
        name=name,
        time_ms=time_ms,
        moved_bytes=cost.moved_bytes,
        flops=sum(cost.flops.values()),
        bytes_per_s=floor.bytes_per_s,
        flops_per_s=floor.flops_per_s,
        bound=floor.basis,
        operations=tuple(timed[:MAX_ROWS]),
        others_ms=sum(each.time_ms for each in timed[MAX_ROWS:]),
    )


def _mean(rows: list[CaseResult]) -> float:
    total = sum(row.weight for row in rows)
    logs = (row.weight * math.log(row.speed_of_light or 1.0) for row in rows)
    return math.exp(sum(logs) / total) if total else math.nan
