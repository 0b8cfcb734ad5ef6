"""The ask/tell engine: selection, operators and archive over recorded facts.

`Search` holds no state that a resume could not read back: the archive's slots are stored in the
transaction of the step that changed them, and all else follows from the recorded facts. It never
evaluates: `ask` gives tickets, a caller with a judge evaluates them, and `tell` takes the verdicts
in any order.
"""

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import NOT_SEARCHED, OPPONENT
from evolve.core.measurement import Ratio, missed_target
from evolve.core.model import CallStatus, LanguageModel, ModelReply, ModelRequest
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import (
    Archive,
    Elite,
    EvaluationRequest,
    Evaluator,
    Failed,
    ModelOperator,
    Offer,
    Population,
    Progress,
    Proposal,
    SelectionPolicy,
    described,
)
from evolve.core.run_store import RunStore
from evolve.core.run_store.steering import Steering, SteeringEvent, SteeringKind
from evolve.core.source.tunables import render
from evolve.search.archive_replay import submit
from evolve.search.credit import CreditRule
from evolve.search.duplicates import DuplicateCheck
from evolve.search.methods import Method
from evolve.search.population import LivePopulation
from evolve.search.proposing import Asked, Proposer
from evolve.search.schedule import Schedule, Scheduled, Shares
from evolve.store import Judge, RunRow, Ticket, TicketState
from evolve.store.champion import refuted_instances

_CONTENDERS = 16  # of the best elites, among which the surest is looked for


class Search:
    """One run: asks for children of the archive's programs, and tells the archive the verdicts.

    Args:
        store: where every fact is committed before it is used.
        run: the run to continue; its archive slots and open tickets are taken over.
        archive: empty; restored from the store.
        selection: chooses parents among the archive's elites.
        operators: by the name that tickets carry.
        schedule: decides which operator is asked, and of which model.
        methods: a portfolio's arms by name, each with a policy and operators of its own; None for
            `selection` and all operators.
        model: answers requests of operators; None without a model.
        baseline: the side of the timing that fitness is measured against.
        opponents: sources timed along with every evaluation, by name (`file:mine.py`).
        reuse: whether a verdict that the database holds already is an answer (`known`).
        device: facts about the judge before its first verdict (`Context.device`).
    """

    def __init__(
        self,
        *,
        store: RunStore,
        run: RunRow,
        archive: Archive,
        selection: SelectionPolicy,
        operators: Mapping[str, Scheduled],
        schedule: Schedule | None = None,
        methods: Mapping[str, Method] | None = None,
        model: LanguageModel | None = None,
        baseline: str = "eager",
        opponents: Mapping[str, str] | None = None,
        reuse: bool = True,
        device: Mapping[str, str] | None = None,
    ) -> None:
        if not operators:
            raise UsageError("operators: none is configured; a search needs at least one")
        self.store = store
        self.run = run
        self.archive = archive
        self.baseline = baseline
        self.model = model
        self._opponents = dict(opponents or {})
        self._reuse = reuse
        schedule = schedule or Shares()
        self.batch = schedule.batch
        self._proposer = Proposer(
            store=store,
            run=run,
            selection=selection,
            operators=operators,
            schedule=schedule,
            methods=methods or {},
            model=model,
            baseline=baseline,
            device=device or {},
        )
        self._sequence = store.next_sequence(run.id)
        self._samples: deque[Ticket] = deque()  # of one request, each a ticket of its own
        archive.restore(store.slots(run.id))
        self._held = LivePopulation(store, run.id, archive.slots())
        self._duplicates = DuplicateCheck(store, run.id, archive)
        self._credit_rule = CreditRule(store, run.id, self._held, baseline)

    def reload(self) -> None:
        """Take note of facts about the task that were stored with the run meanwhile."""
        self.run = self._proposer.run = self.store.run(self.run.name)

    @property
    def progress(self) -> Progress:
        """Counts for limits: programs to start from are no proposals here."""
        reached = self.leader.descriptors.get("speed_of_light") if self.leader else None
        share = reached if isinstance(reached, float) else None
        sure = self._surest
        stored = self.store.progress(self.run.id)
        seeds = sum(self.store.proposals(self.run.id, name) for name in self._proposer.seeds)
        return replace(
            stored,
            proposals=stored.proposals - seeds,
            speed_of_light=share,
            best=Ratio.exp(sure.fitness) if sure else None,
        )

    @property
    def leader(self) -> Elite | None:
        """The archive's best elite by its measured fitness; `champion` is the verified one."""
        return next(iter(self._held), None)

    @property
    def _surest(self) -> Elite | None:
        """Of the archive's best the one whose interval begins highest."""
        return max(self._held[:_CONTENDERS], key=lambda elite: elite.fitness.low, default=None)

    @property
    def population(self) -> Population:
        """The archive's content, as selection policies see it."""
        return self._held

    @property
    def model_operators(self) -> list[str]:
        """Names of the operators that ask models."""
        return [
            name
            for name, scheduled in self._proposer.operators.items()
            if isinstance(scheduled.operator, ModelOperator)
        ]

    @property
    def parts(self) -> Iterator[tuple[str, object]]:
        """Archive, policies and operators, by the setting that each stands under."""
        yield "archive", self.archive
        yield from self._proposer.parts

    @property
    def declined(self) -> Mapping[str, str]:
        """Why operators had nothing to propose when they were last asked, by name."""
        return self._proposer.declined

    def ask(
        self, models: Sequence[str] | None = None, operators: Collection[str] | None = None
    ) -> Ticket | None:
        """The next ticket, stored; None when no operator has anything to propose.

        A ticket that is told already records a failure of its operator, or a proposal that this run
        already holds: there is nothing to evaluate, and the next ask goes on from there. One that
        is asked still has a request for a model; `replied` takes the answer.

        Args:
            models: names of those that may be asked now; None for all, none for operators that
                need no model.
            operators: names of those to ask; None for all.
        """
        if self._samples and (models is None or self._samples[0].model in models):
            return self._samples.popleft()
        asked = self.preview(models, operators)
        return None if asked is None else self._record(asked)

    @property
    def steering(self) -> Steering:
        """The changes that people have made to the search so far."""
        return self._proposer.steering

    def steering_due(self) -> list[SteeringEvent]:
        """Changes that the next step is to take (`take_steering`), in order."""
        return self.store.steering(self.run.id, due=self._sequence)

    def take_steering(
        self, event: SteeringEvent, config: Mapping[str, Any] | None = None
    ) -> Ticket | None:
        """From the next step on an event holds, and another configuration of the run with it.

        Returns:
            The ticket of the event's program, if it has one.
        """
        outcome = None
        if event.kind is SteeringKind.PROGRAM:
            outcome = self._duplicates.checked(Proposal(program=Program(event.value)))
        ticket = self.store.take_steering(self.run.id, event, self._sequence, config, outcome)
        if ticket is not None:
            self._sequence = ticket.sequence + 1
        if config is not None:
            self.run = replace(self.run, config=config)
        self._proposer.steering = self.steering.after(event)
        return ticket

    def is_tuning(self, ticket: Ticket) -> bool:
        """Whether it tries values of a known program, and is no step of the method of search."""
        return ticket.operator in self._proposer.tuning

    def ask_tuning(self) -> Ticket | None:
        """A ticket of an operator that tunes, as far as tuning has a share of the tickets left."""
        due = self._proposer.tuning_due(self._sequence)
        return self.ask(models=(), operators=due) if due else None

    def preview(
        self, models: Sequence[str] | None = None, operators: Collection[str] | None = None
    ) -> Asked | None:
        """The proposal that `ask` would make; nothing is stored."""
        with self.store.snapshot():
            asked = self._proposer.next(
                self._sequence, self._held, models=models, operators=operators
            )
            if asked is not None and isinstance(asked.outcome, Proposal):
                return replace(asked, outcome=self._duplicates.checked(asked.outcome))
            return asked

    def replied(self, call: int, reply: ModelReply) -> Ticket:
        """Store the result of a call, then let the ticket's operator read it.

        Returns:
            The ticket: proposed, told (a failure), or asked again: for one more round, or because
            the endpoint did not accept the call.
        """
        return self.read(self.store.end_call(call, reply))

    def answered(self, ticket: Ticket, reply: ModelReply, *, key: str = "") -> Ticket:
        """`replied`, for an answer that was given elsewhere and cost nothing here.

        `key` is that of the text that it answers (`renewed`); of the newest if left out.
        """
        answered = self.store.answer(ticket, reply, key=key)
        self._held.recount(ticket.parents)
        return self.read(answered)

    def renewed(self, ticket: Ticket) -> Ticket:
        """The ticket with its open first request as it would be asked now.

        It is as it was if no verdict has come since, or nothing else would be asked. A reply to the
        text before is still taken (`answered`).
        """
        if ticket.request is None or ticket.exchanges or not self.store.is_overtaken(ticket):
            return ticket
        with self.store.snapshot():
            asked = self._proposer.ask_again(ticket, self._held)
        if asked is None or not isinstance(asked.outcome, ModelRequest):
            return ticket
        if asked.outcome.key == ticket.request.key:
            return ticket
        parents = [elite.program for elite in asked.parents]
        renewed = self.store.recompose(ticket, parents, replace(asked.outcome, samples=1))
        self._held.recount([*ticket.parents, *parents])
        return renewed

    def read(self, ticket: Ticket) -> Ticket:
        """The operator's reading of a stored reply that has not been read yet."""
        if ticket.state is not TicketState.REPLIED:
            return ticket
        status, outcome = self._proposer.read(ticket, self._held)
        if isinstance(outcome, Proposal):
            outcome = self._duplicates.checked(outcome)
        ticket = self.store.propose(ticket, outcome, status)
        self._held.recount(ticket.parents)
        return ticket

    def offer(
        self,
        source: str,
        *,
        operator: str = "offered",
        note: str = "",
        parents: Sequence[str] = (),
    ) -> Ticket:
        """A ticket for a program that was not asked for; `parents` are those it was made from."""
        proposal = Proposal(program=Program(source), note=note, parents=tuple(parents))
        return self._put(operator, self._duplicates.checked(proposal), parents)

    def reevaluate(self, elite: Elite, *, operator: str, fidelity: Fidelity) -> Ticket:
        """A ticket that evaluates a known instance once more, in the open."""
        program = Program(self.store.source(elite.program))
        proposal = Proposal(
            program=program,
            assignment=elite.assignment,
            fidelity=fidelity,
            parents=(elite.program,),
            is_reevaluation=True,
        )
        return self._put(operator, self._duplicates.checked(proposal))

    def request(
        self, ticket: Ticket, opponents: Mapping[str, str] | None = None
    ) -> EvaluationRequest:
        """The request to the judge for a ticket: the rendered source and its opponents."""
        proposal = _proposal(ticket)
        return EvaluationRequest(
            task=self.run.task,
            instance=instance_digest(proposal.program.digest, proposal.assignment),
            source=render(proposal.program.source, proposal.assignment),
            fidelity=proposal.fidelity,
            opponents=self._opponents | dict(opponents or {}),
            target_speedups=self._target_speedups(proposal),
            repeat=self.store.repeat(self.run.id, ticket.sequence)
            if proposal.is_reevaluation
            else 0,
        )

    def _target_speedups(self, proposal: Proposal) -> dict[str, float]:
        """The speedup that a program needs to be of interest; re-evaluated programs have none."""
        best = self._surest
        if best is None or proposal.is_reevaluation or proposal.fidelity is not Fidelity.SEARCH:
            return {}
        return {self.baseline: math.exp(best.fitness.low)}

    def tell(self, ticket: Ticket, evaluation: Evaluation) -> Offer | None:
        """Commit a verdict, then offer the program to the archive.

        Idempotent: a ticket keeps its first verdict, and repeated verdicts change nothing.

        Returns:
            The archive's answer, or None if there was nothing to offer.
        """
        ticket = self.store.evaluated(ticket, evaluation)
        if ticket.state is TicketState.TOLD or ticket.evaluation is None:
            return None
        with self.store.snapshot():
            elite = self._elite(ticket, ticket.evaluation)
            credit = self._credit_rule.credit(ticket, _proposal(ticket), ticket.evaluation)
        offer = submit(self.archive, elite) if elite else None
        self.store.tell(ticket, elite, offer, credit)
        if elite and offer is not None:
            self._held.update(elite, offer)
        self._held.recount(ticket.parents)
        if elite and elite.parents[:1] != ticket.parents[:1]:
            self._held.recount([elite.program])  # what its ancestors lead to may be another now
        return offer

    def known(self, request: EvaluationRequest, evaluator: Evaluator | Judge) -> Evaluation | None:
        """A stored verdict of any run on the very same instance, task, device class and evaluator.

        Never if other sources are timed along: the key does not say which they were. Nor if the
        instance is to be evaluated again, or has been: one of several verdicts says too little. Nor
        a verdict whose timing ended early (`EARLY_STOPPED`), unless it would end here too.
        """
        if not self._reuse or request.opponents or request.repeat:
            return None
        if request.fidelity is Fidelity.VERIFY:
            return None
        found = self.store.cached(
            request.instance,
            request.task.revision,
            evaluator.device_class,
            evaluator.evaluator_version,
            request.fidelity,
        )
        if found is None or (found.ratios and self.baseline not in found.ratios):
            return None
        if found.early_stopped and missed_target(found.ratios, request.target_speedups) is None:
            return None  # it was of no interest there, and may be here
        return replace(found, device_time_s=0.0)  # it cost nothing this time

    def contenders(self) -> list[Elite]:
        """Elites by fitness, best first, without those that a verification has refuted."""
        refuted = refuted_instances(self.store, self.run)
        return [
            elite
            for elite in self._held
            if instance_digest(elite.program, elite.assignment) not in refuted
        ]

    def text(self, program: str, assignment: Assignment) -> str:
        """The text of a stored program with its tunables set."""
        return render(self.store.source(program), assignment)

    def opponent_tickets(self) -> list[Ticket]:
        """A ticket for each opponent that this run has not judged yet, or not by our own fault."""
        made = self.store.made_by(self.run.id, OPPONENT)
        earlier = (self.store.step(self.run.id, sequence) for sequence in made)
        judged = {step.note for step in earlier if step.status is not Status.INFRA}
        return [
            self._put(OPPONENT, self._duplicates.checked(proposal))
            for proposal in (
                Proposal(program=Program(text), note=name, is_reevaluation=True)
                for name, text in sorted(self._opponents.items())
                if text and name not in judged
            )
        ]

    def check(self, source: str, *, operator: str, note: str) -> Ticket:
        """A ticket that checks a text without timing it; no archive is offered it."""
        program = Program(source)
        proposal = Proposal(
            program=program, fidelity=Fidelity.CHECK, note=note, is_reevaluation=True
        )
        return self._put(operator, self._duplicates.checked(proposal))

    def open_tickets(self) -> list[Ticket]:
        """Tickets that an earlier process left behind, in order.

        Verdicts that arrived are told now, and replies read; a call without an outcome becomes
        unknown. The rest is returned: proposals, and requests without an answer.
        """
        for call in self.store.pending_calls(self.run.id):
            self.store.end_call(call, unknown("the process ended before an answer arrived"))
        waiting = []
        for ticket in map(self.read, self.store.open_tickets(self.run.id)):
            if ticket.evaluation is not None:
                self.tell(ticket, ticket.evaluation)
            elif ticket.state is TicketState.PROPOSED or ticket.request is not None:
                waiting.append(ticket)
            elif ticket.state is TicketState.ASKED:  # before its operator had answered
                self.store.propose(ticket, Failed("the process ended before it was proposed"))
        return waiting

    def _record(self, asked: Asked) -> Ticket:
        choice = asked.choice
        parents = [elite.program for elite in asked.parents]
        if not isinstance(asked.outcome, ModelRequest):
            return self._put(choice.operator, asked.outcome, parents, choice.method)
        tickets = self.store.request(
            self.run.id,
            choice.operator,
            parents,
            asked.outcome,
            choice.model,
            method=choice.method,
        )
        self._sequence = tickets[-1].sequence + 1
        self._samples += tickets[1:]
        self._held.recount(parents)
        return tickets[0]

    def _put(
        self,
        operator: str,
        outcome: Proposal | Failed,
        parents: Sequence[str] = (),
        method: str = "",
    ) -> Ticket:
        tuning = operator in self._proposer.tuning
        ticket = self.store.record(
            self.run.id, operator, parents, outcome, method=method, tuning=tuning
        )
        self._sequence = ticket.sequence + 1
        self._held.recount(parents)
        return ticket

    def _elite(self, ticket: Ticket, evaluation: Evaluation) -> Elite | None:
        """The offer of the ticket's program to the archive; None if nothing is new.

        The program with its best instance, which may be another than the ticket's; with 0
        evaluations if none is left of a program that was offered before, held or not: another
        archive may hold it when the offers are replayed.
        """
        proposal = _proposal(ticket)
        if proposal.fidelity is not Fidelity.SEARCH or ticket.operator in NOT_SEARCHED:
            return None
        fitness = evaluation.fitness(self.baseline)
        known = self._held.elite(proposal.program.digest)
        if known is None and (fitness is None or getattr(self.archive, "describes", {})):
            known = self.store.elite(self.run.id, proposal.program.digest)
        if known is None and fitness is None:
            return None
        elite = self.store.standing(self.run.id, ticket)
        if elite is None:
            return replace(known, evaluations=0) if known and known.evaluations else None
        elite = described(elite, self.archive, lambda: proposal.program.source, known)
        return None if elite == known and fitness is None else elite


def unknown(why: str) -> ModelReply:
    """The reply of a call with an outcome that stays unknown."""
    return ModelReply(status=CallStatus.UNKNOWN, error=why)


def _proposal(ticket: Ticket) -> Proposal:
    if ticket.proposal is None:
        raise ValueError(f"ticket {ticket.sequence} holds no proposal")
    return ticket.proposal
