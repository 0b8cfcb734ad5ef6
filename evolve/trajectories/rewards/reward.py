"""Rewards, and the facts that all of them use."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError
from evolve.core.evaluation import Stage, Status
from evolve.core.measurement import Ratio
from evolve.core.model import ReplyStatus
from evolve.trajectories.step import Made, Step

_UNJUDGED = (Status.INFRA,)
_HOLDS_NO_FAULT = (None, ReplyStatus.PROGRAM, ReplyStatus.STEP, ReplyStatus.UNCHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """A number for one step, computed from stored data.

    Attributes:
        name: with a version that changes with every value it gives: `dr_kernel@1`.
        source: the paper or project that defines it.
        compute: the number; None if an input is missing, or the fault is the judge's.
        baseline: of a speedup that it reads besides `eager` and the step's own baseline.
        needs_samples: whether it reads raw paired times (`Evaluation.samples`).
        needs_texts: whether it reads sources, prompts, replies or feedback.
        reads: the required parts of a correct program's verdict, of `INPUTS`.
    """

    name: str
    source: str
    compute: Callable[[Step], float | None]
    baseline: str = ""
    needs_samples: bool = False
    needs_texts: bool = False
    reads: tuple[str, ...] = ()

    def why_unknown(self, step: Step) -> str:
        """Why a step has no score, in words that fit behind a count."""
        judged = step.evaluation
        if judged is None:
            return "no verdict"
        if judged.status in _UNJUDGED:
            return "the judge failed"
        if grade(step) is None:
            return "not known whether custom kernels made the outcome"
        lacking = (INPUTS[name] for name in self.reads)
        return next((said for said, is_known in lacking if not is_known(step)), "other")

    def score(self, step: Step) -> float | None:
        """The reward of the step; None if that is not known.

        Raises:
            UsageError: the function fails, or does not return a finite number.
        """
        try:
            given = self.compute(step)
        except FAILURES_OF_A_FUNCTION as error:
            raise UsageError(
                f"reward {self.name}: step {step.id} makes it fail: {error!r}"
            ) from error
        if given is None:
            return None
        if not isinstance(given, (int, float)) or not math.isfinite(given):
            raise UsageError(
                f"reward {self.name}: it gave {given!r} for step {step.id}; give a finite number, "
                "or None where it cannot be known"
            )
        return float(given)


INPUTS: dict[str, tuple[str, Callable[[Step], bool]]] = {
    "coverage": (
        "no profile says whose kernels took the time (it needs a GPU)",
        lambda step: step.evaluation is not None and "coverage" in step.evaluation.descriptors,
    ),
    "compile": (
        "torch.compile was not measured (baseline=compile measures it)",
        lambda step: step.ratio_to("compile") is not None,
    ),
    "gain": (
        "parent and child have no speeds to compare",
        lambda step: step.gain is not None,
    ),
    "ratio": ("no speedup over the run's baseline", lambda step: step.ratio is not None),
}
"""A reward's requirements on a correct program's verdict: the message without it, and a test."""


class Grade(IntEnum):
    """The progress of a step, independent of its speed."""

    NOTHING = 0  # the model's reply held no program
    BUILT_NOT = 1  # no ModelNew, or it does not compile
    WRONG = 2  # it compiles, and fails or cheats when run
    CORRECT = 3


def grade(step: Step) -> Grade | None:
    """How far the step came; None if that is not known.

    Not known: no verdict, our own fault, a duplicate of any program (its parent, too), a call
    without an outcome, or a correct program for which it is not known whether custom kernels made
    its outcome.
    """
    judged = step.evaluation
    if judged is None:
        blamed = step.made is Made.NOTHING and step.reading not in _HOLDS_NO_FAULT
        return Grade.NOTHING if blamed else None
    if judged.status in _UNJUDGED:
        return None
    if step.refuted or judged.status is Status.HACK:
        return Grade.WRONG
    if judged.status in (Status.CORRECT, Status.TIMING_UNBOUNDED):
        custom = {True: Grade.CORRECT, False: Grade.WRONG}
        return None if judged.custom is None else custom[judged.custom]
    return Grade.WRONG if judged.stage >= Stage.COMPILE else Grade.BUILT_NOT


def worth(ratio: Ratio | None) -> float | None:
    """The ratio as a reward counts it: exactly 1.0 if its interval holds 1.0.

    >>> worth(Ratio(1.02, 0.99, 1.05)), worth(Ratio(1.2, 1.1, 1.3))
    (1.0, 1.2)
    """
    if ratio is None:
        return None
    return ratio.value if ratio.excludes(1.0) else 1.0
