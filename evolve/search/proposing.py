"""Asks operators: which one next, with which parents, and how it reads a model's reply."""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from evolve.core.model import (
    BY_HAND,
    CallStatus,
    LanguageModel,
    ModelCard,
    ModelRequest,
    ReplyStatus,
)
from evolve.core.protocols import (
    MAX_ROUNDS,
    AgentOperator,
    Context,
    Declined,
    Elite,
    Failed,
    ModelOperator,
    Proposal,
    Reading,
    SeedOperator,
    SelectionPolicy,
    TuningOperator,
)
from evolve.core.randomness import stream
from evolve.core.recalled import Recalled
from evolve.core.reference import ReferenceCost
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import steered
from evolve.search.facts import RunFacts
from evolve.search.methods import Method, shared_out
from evolve.search.population import LivePopulation
from evolve.search.schedule import Choice, Schedule, Scheduled, choices
from evolve.store import RunRow, Ticket

MAX_DRAWS = 8  # of parents, until none of them is banned
MAX_PARENT_CHOICES = 16  # parents offered to an operator that declined the policy's choice

_UNREADABLE = {
    CallStatus.EMPTY: (ReplyStatus.EMPTY, "the reply is empty"),
    CallStatus.REFUSED: (ReplyStatus.REFUSED, "the model refused"),
    CallStatus.FAILED: (None, "the endpoint does not answer this request"),
    CallStatus.UNKNOWN: (None, "no outcome arrived"),
}

Reply = tuple[ReplyStatus | None, Proposal | Failed | ModelRequest]


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator's proposal, for the parents that it was offered."""

    choice: Choice
    parents: tuple[Elite, ...]
    outcome: Proposal | Failed | ModelRequest


@dataclass(kw_only=True)
class Proposer:
    """The operators of a run with their views of it; stores nothing.

    All randomness is a function of the run's seed, the name of the draw, and the ticket's number.
    """

    store: RunStore
    run: RunRow
    selection: SelectionPolicy
    operators: Mapping[str, Scheduled]
    schedule: Schedule
    model: LanguageModel | None
    baseline: str
    device: Mapping[str, str]
    methods: Mapping[str, Method] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._methods = shared_out(self.methods, self.operators, self.selection)
        self.facts = RunFacts(self.store, self.run.id)
        self.steering = steered(self.store.steering(self.run.id))
        self.declined: dict[str, str] = {}  # why operators had nothing to propose, the last time
        self._judged_on: Mapping[str, str] = {}
        self.tuning = {
            name: each.operator
            for name, each in self.operators.items()
            if isinstance(each.operator, TuningOperator)
        }
        self.seeds = [name for name in self.operators if self._is_seed(name)]
        self._recalled = [*map(Recalled.from_json, self.run.config.get("recalled", ()))]
        compiled = self.run.task.compiled
        self._compiled_for = {k: v for each in compiled for k, v in each.device.items()}

    @property
    def parts(self) -> Iterator[tuple[str, object]]:
        """Policies and operators, by the setting that each stands under."""
        for name, method in self.methods.items():
            yield f"methods.{name}.selection", method.selection
        if not self.methods:
            yield "selection", self.selection
        for name, each in self.operators.items():
            yield f"operators.{name}", each.operator

    def next(
        self,
        sequence: int,
        held: LivePopulation,
        *,
        models: Sequence[str] | None = None,
        operators: Collection[str] | None = None,
    ) -> Asked | None:
        """The first outcome; None if all operators decline.

        They are asked in the order of the schedule, but that seeds take turns, and that tuning
        comes last if it has had its share. While nothing is held one episode begins at once, and
        models wait for programs to start from that are being judged.

        Args:
            sequence: number of the ticket that it will be.
            held: the population of the archive.
            models: names of those that may be asked; None for all.
            operators: names of those to ask; None for all.
        """
        self.declined = {}
        tunings = self.store.progress(self.run.id).tunings
        held.turn = sequence - tunings
        cards = {card.name: card for card in self._cards(models)}
        limited = (card.name for card in self._cards(None) if card.slots is not None)
        busy = {name for name in limited if name not in cards}
        order = self.schedule.order(
            [
                choice
                for method, (_, scheduled) in self._methods.items()
                for choice in choices(scheduled, list(cards.values()), method)
                if operators is None or choice.operator in operators
            ],
            lambda: self.store.arms(self.run.id),
            lambda name: self._rng(f"schedule/{name}", sequence),
        )
        order = self._tuned_last(self._by_turns(order), sequence, tunings)
        under_way = [] if held else self._under_way()
        has_begun = any(map(self._is_agent, under_way))
        waits = any(map(self._is_seed, under_way))
        for choice in order if held or has_begun else self._agents_first(order):
            # What a model writes meanwhile would be paid for, and start from nothing.
            begins = self._is_agent(choice.operator) and not has_begun
            if choice.model and waits and not begins:
                self.declined[choice.operator] = "the programs to start from are not judged yet"
                continue
            card = cards.get(choice.model)
            if found := self._propose(choice, sequence, tunings, held, card, busy):
                return found
        return None

    def ask_again(self, ticket: Ticket, held: LivePopulation) -> Asked | None:
        """The present request of the operator of a ticket that still waits for an answer."""
        if ticket.operator not in self.operators:
            return None
        card = next(iter(self._cards([ticket.model])), None)
        choice = Choice(operator=ticket.operator, model=ticket.model, method=ticket.method)
        held.turn = ticket.sequence - ticket.tunings
        return self._propose(choice, ticket.sequence, ticket.tunings, held, card)

    def tuning_due(self, sequence: int) -> list[str]:
        """The operators that tune and have not had their share of the tickets before this one."""
        tunings = self.store.progress(self.run.id).tunings
        return [name for name in self.tuning if not self._had_share(name, sequence, tunings)]

    def read(self, ticket: Ticket, held: LivePopulation) -> Reply:
        """The reading of the newest reply by the ticket's operator."""
        reply = ticket.exchanges[-1].reply
        if reply.status in _UNREADABLE:
            status, what = _UNREADABLE[reply.status]
            return status, Failed(f"{what}: {reply.error}" if reply.error else what)
        scheduled = self.operators.get(ticket.operator)
        if scheduled is None or not isinstance(scheduled.operator, ModelOperator):
            return None, Failed(f"operator {ticket.operator} is not configured any more")
        reading = self._reading(scheduled.operator, ticket, held)
        if isinstance(reading.outcome, ModelRequest):
            if len(ticket.exchanges) >= MAX_ROUNDS:
                return reading.status, Failed(f"no program after {MAX_ROUNDS} rounds")
            return reading.status, self._resolved(reading.outcome, ticket.model)
        return reading.status, reading.outcome

    def _under_way(self) -> list[str]:
        """The operators of the tickets that are not told."""
        found = self.store.open_tickets(self.run.id)
        return [ticket.operator for ticket in found if ticket.operator in self.operators]

    def _by_turns(self, order: Sequence[Choice]) -> list[Choice]:
        """The same, but seeds before all others begin with the one that proposed least.

        Then a run that can judge but few of its seeds has some of every kind.
        """
        seeds = [choice for choice in order if choice.is_first and choice.operator in self.seeds]
        turns = sorted(seeds, key=lambda choice: self.facts.proposals(choice.operator))
        return turns + [choice for choice in order if choice not in seeds]

    def _tuned_last(self, order: Sequence[Choice], sequence: int, tunings: int) -> list[Choice]:
        """The same, but operators that tune and have had their share come after all others."""
        return sorted(order, key=lambda each: self._had_share(each.operator, sequence, tunings))

    def _agents_first(self, order: Sequence[Choice]) -> list[Choice]:
        """The same, but models that work for minutes begin before the first program is judged."""
        return sorted(order, key=lambda each: not self._is_agent(each.operator))

    def _is_agent(self, name: str) -> bool:
        operator = self.operators[name].operator
        return isinstance(operator, AgentOperator) and operator.is_agent

    def _had_share(self, operator: str, sequence: int, tunings: int) -> bool:
        tuner = self.tuning.get(operator)
        return tuner is not None and tunings >= tuner.tuning_share * sequence

    def _is_seed(self, name: str) -> bool:
        return isinstance(self.operators[name].operator, SeedOperator)

    def _reading(self, operator: ModelOperator, ticket: Ticket, held: LivePopulation) -> Reading:
        known = (self.store.elite(self.run.id, program) for program in ticket.parents)
        parents = tuple(elite for elite in known if elite is not None)
        rng = self._rng(f"read/{ticket.operator}/{len(ticket.exchanges)}", ticket.sequence)
        card = next(iter(self._cards([ticket.model])), ModelCard(name=ticket.model))
        number = (ticket.sequence, ticket.tunings)
        context = self._context(parents, held, rng, number, card, ticket.operator)
        return operator.interpret(context, ticket.exchanges)

    def _propose(
        self,
        choice: Choice,
        sequence: int,
        tunings: int,
        held: LivePopulation,
        card: ModelCard | None,
        busy: Collection[str] = (),
    ) -> Asked | None:
        """The outcome of an operator; None if it declines, or asks for a model that is `busy`."""
        operator = self.operators[choice.operator].operator
        for parents in self._parent_choices(choice, operator.parents, held):
            draws = self._rng(f"operator/{choice.operator}", sequence)
            number = (sequence, tunings)
            context = self._context(parents, held, draws, number, card, choice.operator)
            outcome = operator.propose(context)
            if isinstance(outcome, ModelRequest):
                outcome = self._resolved(outcome, choice.model)
                if outcome.model in busy:
                    outcome = Declined(f"model {outcome.model} takes no more requests for now")
            if not isinstance(outcome, Declined):
                return Asked(choice, parents, outcome)
            self.declined.setdefault(choice.operator, outcome.reason)
        return None

    def _parent_choices(
        self, choice: Choice, count: int, held: LivePopulation
    ) -> Iterator[tuple[Elite, ...]]:
        """Those that a person has pinned, the policy's, then the best few others.

        Each comes if the operator declines those before it. Without the last part a greedy policy
        would end a search as soon as there is nothing left to do with the single best program.
        Banned programs are left out.
        """
        chosen = self._selected(choice, count, held)
        pinned = self._pinned(held) if count else []
        for main in pinned:
            rest = (elite for elite in chosen if elite.program != main.program)
            yield (main, *rest)[:count]
        found = bool(pinned) or not self._is_banned(chosen)
        if not self._is_banned(chosen):
            yield chosen
        for others in self._best_others(chosen, count, held) if count else ():
            if not self._is_banned(others):
                found = True
                yield others
        if not found:
            yield ()  # every program is banned: a first version is made

    def _selected(self, choice: Choice, count: int, held: LivePopulation) -> tuple[Elite, ...]:
        """The policy's parents; drawn again if a person has banned one of them."""
        selection, _ = self._methods[choice.method]
        whose = f"{choice.method}:{choice.operator}" if choice.method else choice.operator
        chosen: tuple[Elite, ...] = ()
        for draw in range(MAX_DRAWS):
            name = f"selection/{whose}/{draw}" if draw else f"selection/{whose}"
            chosen = selection.select(held, count, self._rng(name, held.turn))
            if not self._is_banned(chosen):
                break
        return chosen

    def _is_banned(self, parents: Sequence[Elite]) -> bool:
        return any(elite.program in self.steering.banned for elite in parents)

    def _pinned(self, held: LivePopulation) -> list[Elite]:
        """The programs that a person has pinned, the one in turn first."""
        known = (
            held.elite(each) or self.store.elite(self.run.id, each) for each in self.steering.pinned
        )
        found = [elite for elite in known if elite is not None and elite.evaluations]
        turn = held.turn % max(len(found), 1)
        return found[turn:] + found[:turn]

    def _best_others(
        self, chosen: Sequence[Elite], count: int, held: LivePopulation
    ) -> Iterator[tuple[Elite, ...]]:
        """The best few programs beside the policy's choice, those of its island first."""
        own = held.island(chosen[0].program if chosen else None, held.turn)
        for group in [held] if own is None else [own, *held.islands.values()]:
            window = group[: MAX_PARENT_CHOICES + count]
            for start in range(len(window) - count + 1):
                others = tuple(window[start : start + count])
                if others != chosen:
                    yield others

    def _context(
        self,
        parents: tuple[Elite, ...],
        held: LivePopulation,
        rng: random.Random,
        number: tuple[int, int],
        card: ModelCard | None,
        operator: str,
    ) -> Context:
        """An operator's view; `number` is that of the ticket, with the tunings up to it."""
        self._judged_on = self._judged_on or self.store.environment(self.run.id)
        sequence, tunings = number
        cost = self.run.config.get("reference")
        reference = ReferenceCost.from_json(cost) if cost else None
        before = {**(reference.device if reference else {}), **self.device}
        main = parents[0].program if parents else None
        return Context(
            task=self.run.task,
            parents=parents,
            elites=held,
            island=held.island(main, sequence - tunings),
            facts=self.facts,
            rng=rng,
            sequence=sequence,
            tunings=tunings,
            tunes=bool(self.tuning),
            baseline=self.baseline,
            device={**(self._judged_on or before), **self._compiled_for},
            model=card,
            operator=operator,
            recalled=self._recalled,
            reference=reference,
            note=self.steering.note,
        )

    def _resolved(self, request: ModelRequest, picked: str) -> ModelRequest:
        """The request as it will be stored, keyed and sent.

        One for a model that is not configured here (it is answered elsewhere) stays as the operator
        made it. By hand there are no roles.
        """
        is_named = bool(request.model) and picked != BY_HAND
        named = replace(request, model=request.model if is_named else picked)
        return self.model.resolve(named) if self.model and self._cards([picked]) else named

    def _cards(self, models: Sequence[str] | None) -> list[ModelCard]:
        if self.model is None:
            return []
        return [card for card in self.model.models if models is None or card.name in models]

    def _rng(self, name: str, sequence: int) -> random.Random:
        return stream(self.run.seed, name, sequence)
