"""The evaluation that comes of a candidate's way through the stages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evolve.core.devices import UNTESTED
from evolve.core.evaluation import UNTESTED_DEVICE, CaseResult, Evaluation, Label, Status
from evolve.languages.registry import describe
from evolve.worker.correctness.cases import LoadedTask
from evolve.worker.devices.base import Device
from evolve.worker.judge.progress import Progress
from evolve.worker.session.plan import Plan
from evolve.worker.session.prepared_task import PreparedTask
from evolve.worker.session.provenance import environment, evaluator_version
from evolve.worker.timing.results import Timing


@dataclass(frozen=True, slots=True)
class Asked:
    """A request about a candidate (`EvaluationRequest`)."""

    source: str
    plan: Plan
    opponents: Mapping[str, str]
    target_speedups: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Judged:
    """Its result, except for later findings of tools."""

    warm: PreparedTask
    progress: Progress
    status: Status
    feedback: str


def evaluation(asked: Asked, judged: Judged, device: Device, tier: str) -> Evaluation:
    """The evaluation of a request; `tier` is the sandbox's."""
    task, progress, status = judged.warm, judged.progress, judged.status
    correct = status is Status.CORRECT
    timing = progress.timing
    if not correct:
        timing = Timing(labels=timing.labels, device_time_s=timing.device_time_s)
    return Evaluation(
        status=status,
        stage=progress.stage,
        fidelity=asked.plan.fidelity,
        task_revision=task.task.revision,
        device_class=device.device_class,
        evaluator_version=evaluator_version(device),
        ratios=timing.ratios,
        cases=tuple(_row(task, name, timing, correct) for name in _names(task)),
        custom=progress.custom,
        suite=progress.suite,
        labels=(*progress.labels, *timing.labels, *_device_labels(device)),
        feedback=judged.feedback,
        descriptors=describe(asked.source) | progress.descriptors(correct),
        environment=task_environment(task.loaded, device, tier),
        samples={case: found.to_json() for case, found in timing.samples.items()},
        durations_s=progress.all_durations_s,
        device_time_s=timing.device_time_s,
    )


def _device_labels(device: Device) -> Iterator[Label]:
    if device.kind.is_untested:
        yield Label(UNTESTED_DEVICE, f"device={device.kind.name} is {UNTESTED}")


def task_environment(task: LoadedTask, device: Device, tier: str) -> dict[str, str]:
    """All that a verdict on a program of the task depends on besides it."""
    return environment(device, tier, task.precision, task.accumulation, task.timing)


def _names(task: PreparedTask) -> list[str]:
    return [case.case.name for case in task.cases]


def _row(task: PreparedTask, name: str, timing: Timing, passed: bool) -> CaseResult:
    if name in timing.cases:
        return timing.cases[name]
    case = next(case.case for case in task.cases if case.case.name == name)
    return CaseResult(name=name, weight=case.weight, timed=case.timed, passed=passed)
