"""The programs that a task's search has judged, in order: for scores that count tries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evolve.core.evaluation import Evaluation, Status
from evolve.core.lineage import VERIFY, Step
from evolve.core.run_store import RunStore
from evolve.search.execution.final_evaluation import EAGER
from evolve.store import RunRow

_RAN = frozenset(
    (
        *(Status.CORRECT, Status.WRONG_TREE, Status.WRONG_SHAPE, Status.WRONG_DTYPE),
        *(Status.WRONG_VALUE, Status.NONDETERMINISTIC, Status.MUTATED_INPUT, Status.ALIASED),
        Status.TIMING_UNBOUNDED,
    )
)  # verdicts on programs that gave an outcome


@dataclass(frozen=True, slots=True)
class Attempt:
    """One program: whether it gave an outcome, and a right one; its best speedup over eager."""

    ran: bool
    right: bool
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Attempts:
    """A task's programs, and the fastest right one that the suite's own rule passes as well.

    Attributes:
        tried: all in the order in which they were first judged, their tuned instances included.
        speedup: of that fastest one over eager; None if there is none, or none was timed.
        passes: whether there is one at all.
        speedups: of it, by timed case.
        shares: of the speed of light that it reaches, by timed case.
    """

    tried: tuple[Attempt, ...] = ()
    passes: bool = False
    speedup: float | None = None
    speedups: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)

    @property
    def ran(self) -> bool:
        """Whether any program gave an outcome."""
        return any(one.ran for one in self.tried)


def read_attempts(store: RunStore, run: RunRow, steps: Sequence[Step]) -> Attempts:
    """The attempts of a run."""
    tried = _tried(steps)
    for evaluation in _right_ones(store, run, steps):
        if evaluation.suite is not False:
            return _with_best(tried, evaluation)
    return Attempts(tried)


def _tried(steps: Sequence[Step]) -> tuple[Attempt, ...]:
    by_program: dict[str, Attempt] = {}
    for step in steps:
        if step.operator == VERIFY or step.program is None or step.status in (None, Status.INFRA):
            continue
        before = by_program.get(step.program, Attempt(False, False))
        by_program[step.program] = _together(before, step)
    return tuple(by_program.values())


def _together(before: Attempt, step: Step) -> Attempt:
    right = step.status is Status.CORRECT
    speeds = [before.speedup, step.ratios[EAGER].value if right and EAGER in step.ratios else None]
    return Attempt(
        before.ran or step.status in _RAN,
        before.right or right,
        max((speed for speed in speeds if speed is not None), default=None),
    )


def _right_ones(store: RunStore, run: RunRow, steps: Sequence[Step]) -> Iterator[Evaluation]:
    """Verdicts on right programs, the fastest first."""
    right = [step for step in steps if step.status is Status.CORRECT]
    speeds = {step.sequence: step.ratios[EAGER].value for step in right if EAGER in step.ratios}
    for step in sorted(right, key=lambda step: -speeds.get(step.sequence, 0.0)):
        if evaluation := store.evaluation(run.id, step.sequence):
            yield evaluation


def _with_best(tried: tuple[Attempt, ...], best: Evaluation) -> Attempts:
    ratio = best.ratios.get(EAGER)
    return Attempts(
        tried,
        passes=True,
        speedup=ratio.value if ratio else None,
        speedups={c.name: c.ratios[EAGER].value for c in best.cases if EAGER in c.ratios},
        shares={c.name: c.speed_of_light for c in best.cases if c.speed_of_light is not None},
    )
