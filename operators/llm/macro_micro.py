"""Macro thinking, micro coding: a policy picks one typed action, a coder applies just that."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from operators.base import Base
from operators.llm.actions import Step
from operators.llm.planning import Planning, picked
from operators.prompting.replies import Found
from operators.prompting.reply_handling import further, read_edited
from operators.quoting import Quoted
from operators.source.scope import EditScope


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroMicro(Planning):
    """The hierarchical operator of QiMeng-Kernel's MTMC (arXiv 2511.20100), without its training.

    The paper's policy is a small model trained with PPO; its stand-in is a setting of
    `operators.llm.planning`, as the actions are. The coder answers with search/replace edits.
    """

    def propose(self, context: Context) -> ModelRequest | Declined:
        if not context.parents:
            return Declined("needs a parent")
        base = Base.of(context.parents[:1])
        steps = self.steps(context, base)
        if not steps:
            return Declined("no action applies to any region of the program")
        decided = self.decide(context, base, steps)
        return self._apply(context, base, steps, decided) if isinstance(decided, int) else decided

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        base = Base.recall(exchanges)
        steps = self.steps(context, base)
        last = exchanges[-1]
        if "step" not in last.request.memo:
            number = picked(exchanges)
            if isinstance(number, Found):
                return self.settle(context, exchanges, number)
            return further(self._apply(context, base, steps, number))
        step = steps[int(last.request.memo["step"])]
        found = read_edited(exchanges, base.source(context.facts), EditScope.FREE)
        return self.settle(context, exchanges, found, note=str(step))

    def _apply(
        self, context: Context, base: Base, steps: Sequence[Step], number: int
    ) -> ModelRequest | Declined:
        """The request to apply one step and nothing else."""
        step = steps[number]
        job = self.text(
            "apply",
            step=step,
            action=step.action,
            advice=Quoted(step.action.advice),
            example=Quoted(step.action.example),
            region=step.excerpt(base.source(context.facts)),
        )
        answer = self.text("answer_edits", scope=EditScope.FREE.value)
        memo = {"step": number}
        return self.ask(context, job, base=base, answer=answer, directed=False, memo=memo)
