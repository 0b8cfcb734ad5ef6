"""The next goal for a program, and how to reach it, by its speed."""

import math
from dataclasses import dataclass

from evolve.core.measurement import Ratio
from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined
from operators.base import Base
from operators.checks import check_number
from operators.prompting.composition import Prompted
from operators.prompting.prompt_context import baseline_name, speedup_of
from operators.prompting.reply_handling import Answering


@dataclass(frozen=True, slots=True, kw_only=True)
class Milestone(Answering):
    """The skill of CUDA Agent (arXiv 2602.24286), for a model that answers prompts.

    gh:BytedTsinghua-SIA/CUDA-Agent agent_workdir/SKILL.md: first a correct program; then one that
    is faster than the baseline by a margin: far from it by another algorithm, near it by better use
    of the hardware and by constants; then as fast as possible. Each answer states the gain that it
    expects. Unlike there, a goal is reached only if the whole interval is beyond it.

    Args:
        margin: share of its speed by which the baseline has to be beaten.
        near: the program is near the goal within this factor.
    """

    margin: float = 0.05
    near: float = 1.2

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_number("operators.*.margin", self.margin, least=0)
        check_number("operators.*.near", self.near, least=1)

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        reached = speedup_of(context.parents[0]) if context.parents else None
        job = self.text(
            "milestone",
            stage=self._stage(reached),
            baseline=baseline_name(context.baseline),
            percent=round(100 * self.margin),
            speedup=f"{reached.value:.2f}" if reached else "",
        )
        return self.ask(context, job, base=base)

    def _stage(self, reached: Ratio | None) -> str:
        """Which goal is next: a `first` program, or one that is `far` from, `near` or `beyond`."""
        goal = 1 + self.margin
        if reached is None or not math.isfinite(reached.value):
            return "first"
        if reached.low > goal:
            return "beyond"
        return "near" if self.near * reached.value >= goal else "far"
