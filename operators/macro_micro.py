"""Macro thinking, micro coding: a policy picks one typed action, a coder applies just that."""

from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined, Reading
from operators.actions import Step, listing, load_actions, read_choice, steps_of
from operators.answers import Answering, further, read_edited
from operators.base import Base
from operators.budget import Section
from operators.checks import check_choice, check_whole
from operators.composition import Prompted
from operators.ladder import most_promising
from operators.quoting import Quoted, quote
from operators.replies import Found
from operators.scope import EditScope

PLAN = "plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroMicro(Answering):
    """The hierarchical operator of QiMeng-Kernel's MTMC (arXiv 2511.20100), without its training.

    Actions come from a file; where each applies is found in the program's syntax and data flow. The
    paper's policy is a small model trained with PPO; its slot takes one of

    - `llm`: a model ranks the numbered steps, in a call of its own;
    - `bandit`: UCB1 over action types, on the paper's reward ladder over this run's own steps;
    - `uniform`: any step.

    Args:
        policy: who picks the step.
        planner: the model or role that picks it under `llm`; empty for the one of the ticket.
        actions: a YAML file in place of the set that ships.
        options: the most steps that are offered to a model.
        window: past steps that the bandit learns from.
    """

    policy: str = "llm"
    planner: str = ""
    actions: str = ""
    options: int = 24
    window: int = 48

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_choice("operators.macro_micro.policy", self.policy, ("llm", "bandit", "uniform"))
        check_whole("operators.macro_micro.options", self.options, least=2)
        check_whole("operators.macro_micro.window", self.window, least=1)
        load_actions(self.actions)

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.planner,) if self.planner and self.policy == "llm" else ()

    def propose(self, context: Context) -> ModelRequest | Declined:
        if not context.parents:
            return Declined("needs a parent")
        base = Base.of(context.parents[:1])
        steps = self._steps(context, base)
        if not steps:
            return Declined("no action applies to any region of the program")
        if self.policy == "llm":
            return self._plan(context, base, steps)
        places = [*range(len(steps))]
        if self.policy == "bandit":
            kinds = [step.action.name for step in steps]
            best = most_promising(context, kinds, self.window)
            places = [place for place in places if kinds[place] in best]
        number = context.rng.choice(places)
        return self._apply(context, base, steps[number], number)

    def interpret(self, context: Context, exchanges: Sequence[Exchange]) -> Reading:
        """See `evolve.core.protocols.ModelOperator`."""
        base = Base.recall(exchanges)
        steps = self._steps(context, base)
        last = exchanges[-1]
        if "step" not in last.request.memo:
            number = read_choice(last.reply, len(steps))
            if isinstance(number, Found):
                return self.settle(context, exchanges, number)
            return further(self._apply(context, base, steps[number], number))
        step = steps[int(last.request.memo["step"])]
        found = read_edited(exchanges, base.source(context.facts), EditScope.FREE)
        return self.settle(context, exchanges, found, note=str(step))

    def _steps(self, context: Context, base: Base) -> list[Step]:
        return steps_of(base.source(context.facts), load_actions(self.actions), self.options)

    def _plan(self, context: Context, base: Base, steps: Sequence[Step]) -> ModelRequest | Declined:
        listed = quote(
            listing(base.source(context.facts), steps),
            "steps, each with the first line of its region",
        )
        options = Section(name="options", head=f"# Steps to choose from\n\n{listed}")
        return self.ask(
            context,
            self.text("plan"),
            base=base,
            answer=self.text("answer_plan", count=len(steps)),
            extra=[options],
            purpose=PLAN,
            model=self.planner or None,
        )

    def _apply(
        self, context: Context, base: Base, step: Step, number: int
    ) -> ModelRequest | Declined:
        """The request to apply one step and nothing else."""
        lines = base.source(context.facts).split("\n")[step.region.first - 1 : step.region.last]
        whole = step.region.kind == "module"
        job = self.text(
            "apply",
            step=step,
            action=step.action,
            advice=Quoted(step.action.advice),
            example=Quoted(step.action.example),
            region="" if whole else quote("\n".join(lines), "region"),
        )
        return self.ask(
            context,
            job,
            base=base,
            answer=self.text("answer_edits", scope=EditScope.FREE.value),
            memo={"step": number},
        )
