"""New directions for a stalled search."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evolve.core.model import ModelRequest
from evolve.core.protocols import Context, Declined
from operators.base import Base
from operators.checks import check_whole
from operators.llm.summarise import Summarising
from operators.prompting.composition import SUMMARY, Memory, step_of
from operators.prompting.inspirations import has_failed
from operators.prompting.prompt_context import exhibit

RESCUE = "rescue"
"""Purpose of a request for several programs at once, each in a direction of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervise(Summarising):
    """The supervisor of AVO (arXiv 2603.24517): it detects stalls and redirects the search.

    With an infinite weight it has priority over all operators but seeds, and declines while the
    search improves. After `stalled` steps without a better program, or if the newest `wrong` steps
    all failed, it asks for new directions; the prompt shows the lineage, the newest steps and its
    last answer. All prompts quote the answer, and the same step asks for a program that follows it.
    After `rescue_after` such redirections without a better program, it asks for `rescue` programs
    at once, each in a direction of its own.

    Counters decide when it acts, not a model. The levels and their numbers are those of
    gh:AMD-AGI/GEAK src/minisweagent/run/avo, because the paper has none. That one also interrupts
    a running agent; there is none here.

    Args:
        stalled: steps without a better program, since the last one or the last redirection.
        wrong: failures in a row.
        rescue_after: redirections without a better program.
        rescue: programs that are asked for at once.
    """

    stalled: int = 8
    wrong: int = 5
    rescue_after: int = 3
    rescue: int = 4

    def __post_init__(self) -> None:
        Summarising.__post_init__(self)
        for name in ("stalled", "wrong", "rescue_after", "rescue"):
            check_whole(f"operators.*.{name}", getattr(self, name), least=1)

    @property
    def fires_at(self) -> dict[str, int]:
        """When the first redirection and the first rescue are possible."""
        soon = min(self.stalled, self.wrong)
        return {"stalled": soon, "rescue_after": soon * (self.rescue_after + 1)}

    def propose(self, context: Context) -> ModelRequest | Declined:
        base = Base.of(context.parents[:1])
        redirected = self.last_request(context, SUMMARY)
        rescued = self.last_request(context, RESCUE)
        best = context.elites[0].step if context.elites else 0
        since = max(best, step_of(redirected), step_of(rescued))
        if not self._is_stuck(context, since):
            return Declined("the search improves")
        given = 0
        if redirected is not None and step_of(redirected) > max(best, step_of(rescued)):
            given = int(redirected.memo["redirections"])
        if given >= self.rescue_after:
            return self._rescue(context, base)
        shown = [exhibit(context, *program) for program in base.programs]
        past = [
            self._parents("The best program", shown),
            *self.memory_of(context, base, Memory.INHERIT),
        ]
        return self.ask_summary(
            context, base, "supervise", extra=past, memo={"redirections": given + 1}
        )

    def _is_stuck(self, context: Context, since: int) -> bool:
        steps = context.step - since
        newest = context.facts.recent(self.wrong)
        failing = len(newest) == self.wrong and all(map(has_failed, newest))
        return steps >= self.stalled or (failing and steps >= self.wrong)

    def _rescue(self, context: Context, base: Base) -> ModelRequest | Declined:
        """The request for several programs at once."""
        several = replace(self, samples=self.rescue)
        job = self.text("rewrite_full", first=not base.programs)
        memo: Mapping[str, Any] = {"upto": context.sequence, "step": context.step}
        return several.ask(context, job, base=base, purpose=RESCUE, memo=dict(memo))
