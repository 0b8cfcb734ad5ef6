"""Macro thinking: which of the steps that a program allows is taken next."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.digest import canonical_json
from evolve.core.model import Exchange, ModelRequest
from evolve.core.protocols import Context, Declined
from operators.base import Base
from operators.checks import check_choice, check_whole
from operators.llm.action_bandit import most_promising
from operators.llm.actions import Step, listing, load_actions, offered, read_choice, steps_of
from operators.prompting.budget import Section
from operators.prompting.composition import Prompted
from operators.prompting.replies import Found
from operators.prompting.reply_handling import Answering
from operators.quoting import quote

PLAN = "plan"
"""Purpose of a request that asks a model for the number of a step."""

OFFERED = "offered"
"""Where the memo of such a request has the places of the steps that are numbered in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning(Answering):
    """The policy slot of an operator that takes one typed step at a time.

    Actions come from a file; where each applies is found in the program's syntax and data flow
    (`operators.source.regions`). The slot takes one of

    - `llm`: a model ranks the numbered steps, in a call of its own;
    - `bandit`: UCB1 over action types, on the reward ladder over this run's own steps;
    - `uniform`: any step.

    Args:
        policy: who picks the step.
        planner: the model or role that picks it under `llm`; empty for the one of the ticket.
        actions: a YAML file in place of the set that ships.
        options: the most steps that are offered to a model: drawn anew for every ticket, by turns
            from the types of action, so that every step is offered some time and every type each
            time that there is room for it. The other policies choose among all steps.
        window: past steps that the bandit learns from.
    """

    policy: str = "llm"
    planner: str = ""
    actions: str = ""
    options: int = 24
    window: int = 48

    def __post_init__(self) -> None:
        Prompted.__post_init__(self)
        check_choice("operators.*.policy", self.policy, ("llm", "bandit", "uniform"))
        check_whole("operators.*.options", self.options, least=2)
        check_whole("operators.*.window", self.window, least=1)
        load_actions(self.actions)

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.planner,) if self.planner and self.policy == "llm" else ()

    def steps(self, context: Context, base: Base) -> list[Step]:
        """The steps that the program to change allows; the same for the same text."""
        return steps_of(base.source(context.facts), load_actions(self.actions))

    def decide(
        self, context: Context, base: Base, steps: Sequence[Step]
    ) -> int | ModelRequest | Declined:
        """The place of the next step, or the request to the model that is to pick it."""
        if self.policy == "llm":
            return self._plan(context, base, steps)
        places = [*range(len(steps))]
        if self.policy == "bandit":
            kinds = [step.action.name for step in steps]
            best = most_promising(context, kinds, self.window)
            places = [place for place in places if kinds[place] in best]
        return context.rng.choice(places)

    def _plan(self, context: Context, base: Base, steps: Sequence[Step]) -> ModelRequest | Declined:
        places = offered(steps, self.options, context.rng)
        listed = quote(
            listing(base.source(context.facts), [steps[place] for place in places]),
            "steps, each with the first line of its region",
        )
        options = Section(name="options", head=f"# Steps to choose from\n\n{listed}")
        return self.ask(
            context,
            self.text("plan"),
            base=base,
            answer=self.text("answer_plan", count=len(places)),
            extra=[options],
            directed=False,
            purpose=PLAN,
            model=self.planner or None,
            memo={OFFERED: canonical_json(places)},
        )


def picked(exchanges: Sequence[Exchange]) -> int | Found:
    """The place, among all steps, of the one that the reply to a plan picks."""
    last = exchanges[-1]
    places: list[int] = json.loads(str(last.request.memo[OFFERED]))
    number = read_choice(last.reply, len(places))
    return number if isinstance(number, Found) else places[number]
