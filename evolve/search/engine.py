"""The ask/tell engine: selection, operators and archive over recorded facts.

`Search` holds no state that a resume could not read back: the archive's slots are stored in the
transaction of the step that changed them, and all else follows from the recorded facts. It never
evaluates: `ask` gives tickets, whoever has a judge evaluates them, and `tell` takes the verdicts in
any order.
"""

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import OPPONENT
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
    Progress,
    Proposal,
    SelectionPolicy,
)
from evolve.core.tunables import render
from evolve.search.champion import refuted_instances
from evolve.search.proposing import Asked, Proposer
from evolve.search.ranking import Ranking
from evolve.search.schedule import Schedule, Scheduled, Shares
from evolve.store import RunRow, Store, Ticket, TicketState
from evolve.store.attempts import DUPLICATE


class Search:
    """One run: asks for children of the archive's programs, and tells the archive the verdicts.

    Args:
        store: where every fact is committed before it is used.
        run: the run to continue; its archive slots and open tickets are taken over.
        archive: empty; restored from the store.
        selection: chooses parents among the archive's elites.
        operators: by the name that tickets carry.
        schedule: decides which operator is asked, and of which model.
        model: who answers what operators ask; None where nobody does.
        baseline: the side of the timing that fitness is measured against.
        opponents: sources timed along with every evaluation, by name (`file:mine.py`).
        reuse: whether a verdict that the database holds already is an answer (`known`).
    """

    def __init__(
        self,
        *,
        store: Store,
        run: RunRow,
        archive: Archive,
        selection: SelectionPolicy,
        operators: Mapping[str, Scheduled],
        schedule: Schedule | None = None,
        model: LanguageModel | None = None,
        baseline: str = "eager",
        opponents: Mapping[str, str] | None = None,
        reuse: bool = True,
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
        self._proposer = Proposer(
            store=store,
            run=run,
            selection=selection,
            operators=operators,
            schedule=schedule or Shares(),
            model=model,
            baseline=baseline,
        )
        self._sequence = store.next_sequence(run.id)
        self._samples: deque[Ticket] = deque()  # of one request, each a ticket of its own
        archive.restore(store.slots(run.id))
        self._ranking = Ranking(archive.slots().values())

    @property
    def progress(self) -> Progress:
        reached = self.leader.descriptors.get("speed_of_light") if self.leader else None
        share = reached if isinstance(reached, float) else None
        return replace(self.store.progress(self.run.id), speed_of_light=share)

    @property
    def leader(self) -> Elite | None:
        """The archive's best elite by its measured fitness; `champion` is the verified one."""
        return next(iter(self._ranking.elites), None)

    @property
    def model_operators(self) -> list[str]:
        """Names of the operators that ask models."""
        return [
            name
            for name, scheduled in self._proposer.operators.items()
            if isinstance(scheduled.operator, ModelOperator)
        ]

    @property
    def declined(self) -> Mapping[str, str]:
        """Why operators had nothing to propose when they were last asked, by name."""
        return self._proposer.declined

    def ask(
        self, models: Sequence[str] | None = None, operators: Collection[str] | None = None
    ) -> Ticket | None:
        """The next ticket, stored; None when no operator has anything to propose.

        A ticket that is told already records a failure of its operator, or a proposal of what this
        run holds already: nothing is to be evaluated, and the next ask goes on from there. One that
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

    def preview(
        self, models: Sequence[str] | None = None, operators: Collection[str] | None = None
    ) -> Asked | None:
        """What `ask` would come up with; nothing is stored."""
        return self._proposer.next(
            self._sequence, self._ranking.elites, models=models, operators=operators
        )

    def replied(self, call: int, reply: ModelReply) -> Ticket:
        """Store what came of a call, then let the ticket's operator read it.

        Returns:
            The ticket: proposed, told (a failure), or asked again: for one more round, or because
            the endpoint did not accept the call.
        """
        return self.read(self.store.end_call(call, reply))

    def answered(self, ticket: Ticket, reply: ModelReply) -> Ticket:
        """`replied`, for an answer that was given elsewhere and cost nothing here."""
        return self.read(self.store.answer(ticket, reply))

    def read(self, ticket: Ticket) -> Ticket:
        """What the operator makes of a stored reply that nobody has read yet."""
        if ticket.state is not TicketState.REPLIED:
            return ticket
        status, outcome = self._proposer.read(ticket, self._ranking.elites)
        if isinstance(outcome, Proposal):
            outcome = self._checked(outcome)
        return self.store.propose(ticket, outcome, status)

    def offer(self, source: str, *, operator: str = "offered", note: str = "") -> Ticket:
        """A ticket for a program that nobody asked for."""
        return self._put(operator, Proposal(program=Program(source), note=note))

    def again(self, elite: Elite, *, operator: str, fidelity: Fidelity) -> Ticket:
        """A ticket that evaluates a known instance once more, in the open."""
        program = Program(self.store.source(elite.program))
        return self._put(
            operator,
            Proposal(
                program=program,
                assignment=elite.assignment,
                fidelity=fidelity,
                parents=(elite.program,),
            ),
            repeat=True,
        )

    def request(
        self, ticket: Ticket, opponents: Mapping[str, str] | None = None
    ) -> EvaluationRequest:
        """What the judge is asked for a ticket: the rendered source and its opponents."""
        proposal = _proposal(ticket)
        return EvaluationRequest(
            task=self.run.task,
            instance=instance_digest(proposal.program.digest, proposal.assignment),
            source=render(proposal.program.source, proposal.assignment),
            fidelity=proposal.fidelity,
            opponents=self._opponents | dict(opponents or {}),
        )

    def tell(self, ticket: Ticket, evaluation: Evaluation) -> Offer | None:
        """Commit a verdict, then offer the program to the archive.

        Idempotent: a ticket keeps its first verdict, and what is told again changes nothing.

        Returns:
            The archive's answer, or None where there was nothing to offer.
        """
        ticket = self.store.evaluated(ticket, evaluation)
        if ticket.state is TicketState.TOLD or ticket.evaluation is None:
            return None
        elite = self._elite(ticket, ticket.evaluation)
        gain = self._gain(elite) if elite else 0.0
        offer = self.archive.offer(elite) if elite else None
        self.store.tell(ticket, elite, offer, gain)
        if elite and offer:
            self._ranking.update(elite, offer)
        return offer

    def known(self, request: EvaluationRequest, evaluator: Evaluator) -> Evaluation | None:
        """A stored verdict of any run on the very same instance, task, device class and evaluator.

        Never where other sources are timed along: the key does not say which they were.
        """
        if not self._reuse or request.opponents or request.fidelity is Fidelity.VERIFY:
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
        return replace(found, device_time_s=0.0)  # it cost nothing this time

    def contenders(self) -> list[Elite]:
        """Elites by fitness, best first, without those that a verification has refuted."""
        refuted = refuted_instances(self.store, self.run)
        return [
            elite
            for elite in self._ranking.elites
            if instance_digest(elite.program, elite.assignment) not in refuted
        ]

    def text(self, program: str, assignment: Assignment) -> str:
        """The text of a stored program with its tunables set."""
        return render(self.store.source(program), assignment)

    def opponent_tickets(self) -> list[Ticket]:
        """A ticket for each opponent that this run has not judged yet."""
        judged = self.store.proposals(self.run.id, OPPONENT)
        with_text = [(name, source) for name, source in self._opponents.items() if source]
        return [
            self._put(OPPONENT, Proposal(program=Program(source), note=name), repeat=True)
            for name, source in sorted(with_text)[judged:]
        ]

    def open_tickets(self) -> list[Ticket]:
        """What an earlier process left behind, in order.

        Verdicts that arrived are told now, and replies read; a call without an outcome becomes
        unknown. The rest is returned: proposals, and requests that nobody has answered.
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
        if not isinstance(asked.outcome, ModelRequest):
            return self._put(asked.choice.operator, asked.outcome)
        parents = [elite.program for elite in asked.parents]
        name, model = asked.choice.operator, asked.choice.model
        tickets = self.store.request(self.run.id, name, parents, asked.outcome, model)
        self._sequence = tickets[-1].sequence + 1
        self._samples += tickets[1:]
        return tickets[0]

    def _put(self, operator: str, outcome: Proposal | Failed, *, repeat: bool = False) -> Ticket:
        parents = outcome.parents if isinstance(outcome, Proposal) else ()
        if isinstance(outcome, Proposal) and not repeat:
            outcome = self._checked(outcome)
        ticket = self.store.record(self.run.id, operator, parents, outcome)
        self._sequence = ticket.sequence + 1
        return ticket

    def _checked(self, proposal: Proposal) -> Proposal | Failed:
        """The proposal, or why the judge need not see it."""
        try:
            render(proposal.program.source, proposal.assignment)
        except UsageError as error:
            return Failed(f"it cannot be rendered: {error}")
        if why := self._duplicate(proposal):
            return Failed(f"{DUPLICATE}{why}")
        return proposal

    def _duplicate(self, proposal: Proposal) -> str:
        """Why the proposal is nothing new; empty where it is.

        A screened instance may be asked for again at full fidelity.
        """
        trials = self._proposer.facts.trials(proposal.program.digest)
        if not trials and (twin := self.store.twin(self.run.id, proposal.program)):
            return f"program {twin[:12]} differs in layout, comments or tunable values only"
        known = any(
            dict(trial.assignment) == dict(proposal.assignment)
            and (trial.fidelity is not Fidelity.SCREEN or proposal.fidelity is Fidelity.SCREEN)
            for trial in trials
        )
        return "this run holds the same instance already" if known else ""

    def _elite(self, ticket: Ticket, evaluation: Evaluation) -> Elite | None:
        proposal = _proposal(ticket)
        fitness = evaluation.fitness(self.baseline)
        if (
            fitness is None
            or proposal.fidelity is not Fidelity.SEARCH
            or ticket.operator == OPPONENT
        ):
            return None
        return Elite(
            program=proposal.program.digest,
            assignment=proposal.assignment,
            fitness=fitness,
            descriptors=evaluation.descriptors,
            sequence=ticket.sequence,
            operator=ticket.operator,
            parents=ticket.parents,
        )

    def _gain(self, elite: Elite) -> float:
        """How far the elite's interval lies above no gain over its parent, in log speedup.

        Over the leader where it has no parent, and over the baseline where there is no leader.
        """
        reference = (
            self.store.elite(self.run.id, elite.parents[0]) if elite.parents else self.leader
        )
        if reference is None:
            return max(elite.fitness.low, 0.0)
        ours, theirs = elite.fitness, reference.fitness
        spread = math.hypot(ours.value - ours.low, theirs.high - theirs.value)
        return max(ours.value - theirs.value - spread, 0.0)


def unknown(why: str) -> ModelReply:
    """What stands for the reply of a call whose outcome will never be known."""
    return ModelReply(status=CallStatus.UNKNOWN, error=why)


def _proposal(ticket: Ticket) -> Proposal:
    if ticket.proposal is None:
        raise ValueError(f"ticket {ticket.sequence} holds no proposal")
    return ticket.proposal
