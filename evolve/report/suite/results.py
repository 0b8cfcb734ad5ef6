"""A suite's results as the database holds them: for every task, the result of its run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evolve.core.evaluation import Evaluation, Status
from evolve.core.lineage import VERIFY, Step
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import instance_digest
from evolve.core.run_store import RunStore
from evolve.report.audit import findings_of, weakness
from evolve.report.comparison.curves import Curve, read_curve
from evolve.report.suite.attempts import Attempts, read_attempts
from evolve.report.text import baseline_name, one_line, ratio_text, span_text
from evolve.search.execution.final_evaluation import EAGER, has_fallen, is_mixed
from evolve.store import RunRow
from evolve.store.champion import champion

CUSTOM, MIXED = "custom", "mixed"
CANDIDATE = "candidate"
MAX_REASON = 200  # characters of an outcome
MAX_OUTCOMES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTask:
    """One task of a suite: the name of its run, and how people call and sort it."""

    run: str
    label: str
    level: str
    title: str
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A correct program of a run, with the times that stand for it.

    `ratios` are the speedups against each baseline, each from one interleaved run; `times_ms` the
    times of the sides, if the task has one timed case; `final` whether it was measured again
    after it had won, and `verified` whether in full.
    """

    kind: str  # CUSTOM or MIXED
    sequence: int
    ratios: Mapping[str, Ratio]
    times_ms: Mapping[str, Interval] = field(default_factory=dict)
    speed_of_light: float | None = None
    final: bool = False
    verified: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """The result of one task; `reason` says why it has no custom program."""

    task: SuiteTask
    run: RunRow | None = None
    custom: Found | None = None
    mixed: Found | None = None
    weak: str = ""
    reason: str = ""
    evaluations: int = 0
    device_time_s: float = 0.0
    wall_time_s: float = 0.0
    curve: Curve | None = None
    attempts: Attempts = field(default_factory=Attempts)
    environment: Mapping[str, str] = field(default_factory=dict)
    evaluator_version: str = ""

    @property
    def ended(self) -> bool:
        """Whether the task's search is over, so that having nothing means something."""
        return self.run is not None and self.run.state == "finished"

    @property
    def best(self) -> Found | None:
        """The faster one of both kinds."""
        found = [each for each in (self.custom, self.mixed) if each is not None]
        return max(found, key=lambda each: each.ratios[EAGER].value, default=None)


def read_suite(store: RunStore, tasks: Sequence[SuiteTask]) -> list[TaskResult]:
    """The results of all tasks, in their order."""
    runs = {run.name: run for run in store.runs()}
    return [
        read_result(store, task, runs[task.run])
        if task.run in runs
        else TaskResult(task=task, reason="not begun")
        for task in tasks
    ]


def read_result(store: RunStore, task: SuiteTask, run: RunRow) -> TaskResult:
    """The current result of a task's run."""
    steps = list(store.steps(run.id))
    winner = champion(store, run)
    crowned = winner.instance if winner else ""
    custom = _best(store, run, steps, CUSTOM, crowned)
    mixed = _best(store, run, steps, MIXED, crowned)
    progress = store.progress(run.id)
    weak = weakness(findings_of(run.config))
    return TaskResult(
        task=task,
        run=run,
        custom=custom,
        mixed=mixed,
        weak=weak,
        reason="" if custom else _reason(store, run, steps),
        evaluations=progress.evaluations,
        device_time_s=progress.device_time_s,
        wall_time_s=progress.wall_time_s,
        curve=read_curve(store, run),
        attempts=read_attempts(store, run, steps),
        environment=store.environment(run.id),
        evaluator_version=store.judge(run.id)[1] if progress.evaluations else "",
    )


def _best(
    store: RunStore, run: RunRow, steps: Sequence[Step], kind: str, crowned: str
) -> Found | None:
    """The champion if it is of the kind, else the fastest; one that a final spoke for goes first.

    `crowned` is the champion's instance.
    """
    by_instance: dict[str, list[Step]] = {}
    for step in steps:
        if step.program is not None:
            instance = instance_digest(step.program, step.assignment)
            by_instance.setdefault(instance, []).append(step)
    found = {name: _found(store, run, group, kind) for name, group in by_instance.items()}
    _, best = max(
        ((name, each) for name, each in found.items() if each is not None),
        key=lambda pair: (pair[0] == crowned, pair[1].final, pair[1].ratios[EAGER].value),
        default=("", None),
    )
    return best


def _found(store: RunStore, run: RunRow, group: Sequence[Step], kind: str) -> Found | None:
    """One instance by all its evaluations; None if it is not of the kind, or has fallen."""
    finals = [step for step in group if step.operator == VERIFY]
    told = [step for step in group if EAGER in step.ratios and _is_of(step, kind)]
    last_word = [step for step in told if step.operator == VERIFY] or told
    if not last_word or any(has_fallen(step.status) for step in finals):
        return None
    if any(step.status is Status.CORRECT and not _is_of(step, kind) for step in finals):
        return None
    ratios: dict[str, Ratio] = {}
    for step in last_word:
        ratios |= step.ratios
    verdicts = [store.evaluation(run.id, step.sequence) for step in last_word]
    share = verdicts[-1].descriptors.get("speed_of_light") if verdicts[-1] else None
    return Found(
        kind=kind,
        sequence=last_word[-1].sequence,
        ratios=ratios,
        times_ms=_times(filter(None, verdicts)),
        speed_of_light=share if isinstance(share, float) else None,
        final=last_word[-1].operator == VERIFY,
        verified=any(step.fidelity == "verify" for step in last_word),
    )


def _is_of(step: Step, kind: str) -> bool:
    if kind == MIXED:
        return is_mixed(step)
    return step.status is Status.CORRECT and step.custom is True


def _times(verdicts: Iterable[Evaluation]) -> dict[str, Interval]:
    """Times of all sides, the newest of each; none if several cases are timed."""
    times: dict[str, Interval] = {}
    for verdict in verdicts:
        cases = [case for case in verdict.cases if case.times_ms]
        if len(cases) == 1:
            times |= cases[0].times_ms
    return times


def _reason(store: RunStore, run: RunRow, steps: Sequence[Step]) -> str:
    """Why a run has no custom program: outcomes of its proposals, each with an example."""
    if run.state != "finished":
        return f"{run.state}: {run.reason}" if run.reason else run.state
    examples: dict[str, Step] = {}
    for step in steps:
        examples.setdefault(_outcome(step), step)
    if not examples:
        return one_line(run.reason, MAX_REASON)
    return "; ".join(
        one_line(f"{step.operator} {step.note}: {outcome}{_why(store, run, step)}", MAX_REASON)
        for outcome, step in list(examples.items())[:MAX_OUTCOMES]
    )


def _outcome(step: Step) -> str:
    if step.status is None:
        return step.failure or "not judged"
    if step.status is not Status.CORRECT:
        return step.status.replace("_", " ")
    if is_mixed(step):
        return "correct, with vendors' calls"
    return "correct, but not by kernels of its own" if step.custom is not True else "not timed"


def _why(store: RunStore, run: RunRow, step: Step) -> str:
    verdict = store.evaluation(run.id, step.sequence)
    if verdict is None or verdict.status is Status.CORRECT:
        return ""
    return f": {verdict.feedback}"


def task_line(result: TaskResult, baselines: Sequence[str]) -> str:
    """A result in one line: name, kind, speedup over eager with its interval, then the others."""
    label = result.task.label
    if result.task.title != result.task.label:
        label += f" {result.task.title}"
    found = result.best
    if found is None:
        return f"{label}: none, {result.reason}"
    ratio = found.ratios[EAGER]
    said = [f"{found.kind}, {ratio_text(ratio.value)} ({span_text(ratio)}) eager"]
    said += [
        f"{ratio_text(found.ratios[name].value)} {baseline_name(name)}"
        for name in baselines
        if name in found.ratios
    ]
    weak = ", WEAK task" if result.weak else ""
    return f"{label}: {', '.join(said)}{weak}"
