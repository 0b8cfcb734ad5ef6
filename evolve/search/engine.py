"""The ask/tell engine: selection, operators and archive over recorded facts.

`Search` holds no state that a resume could not read back: the archive's slots are stored in the
transaction of the step that changed them, and all else follows from the recorded facts. It never
evaluates: `ask` gives tickets, whoever has a judge evaluates them, and `tell` takes the verdicts in
any order.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import OPPONENT
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import (
    Archive,
    Context,
    Declined,
    Elite,
    EvaluationRequest,
    Evaluator,
    Failed,
    Offer,
    Progress,
    Proposal,
    SelectionPolicy,
    Trial,
)
from evolve.core.randomness import stream
from evolve.core.tunables import render
from evolve.search.champion import refuted_instances
from evolve.search.ranking import Ranking
from evolve.search.schedule import Scheduled, order
from evolve.store import RunRow, Store, Ticket, TicketState

MAX_PARENT_CHOICES = 16  # parents offered to an operator that declined the policy's choice


class RunFacts:
    """`evolve.core.protocols.Facts` of one run."""

    def __init__(self, store: Store, run: int) -> None:
        self._store = store
        self._run = run

    def source(self, program: str) -> str:
        return self._store.source(program)

    def trials(self, program: str) -> Sequence[Trial]:
        return self._store.trials(self._run, program)

    def proposals(self, operator: str) -> int:
        return self._store.proposals(self._run, operator)

    def seen(self, instance: str) -> bool:
        return self._store.seen(self._run, instance)


class Search:
    """One run: asks for children of the archive's programs, and tells the archive the verdicts.

    Args:
        store: where every fact is committed before it is used.
        run: the run to continue; its archive slots and open tickets are taken over.
        archive: empty; restored from the store.
        selection: chooses parents among the archive's elites.
        operators: by the name that tickets carry.
        baseline: the side of the timing that fitness is measured against.
        opponents: sources timed along with every evaluation, by name (`file:mine.py`).
    """

    def __init__(
        self,
        *,
        store: Store,
        run: RunRow,
        archive: Archive,
        selection: SelectionPolicy,
        operators: Mapping[str, Scheduled],
        baseline: str = "eager",
        opponents: Mapping[str, str] | None = None,
    ) -> None:
        if not operators:
            raise UsageError("operators: none is configured; a search needs at least one")
        self.store = store
        self.run = run
        self.archive = archive
        self.baseline = baseline
        self._selection = selection
        self._operators = operators
        self._opponents = dict(opponents or {})
        self._facts = RunFacts(store, run.id)
        self._sequence = store.next_sequence(run.id)
        archive.restore(store.slots(run.id))
        self._ranking = Ranking(archive.slots().values())

    @property
    def progress(self) -> Progress:
        return self.store.progress(self.run.id)

    @property
    def leader(self) -> Elite | None:
        """The archive's best elite by its measured fitness; `champion` is the verified one."""
        return next(iter(self._ranking.elites), None)

    def ask(self) -> Ticket | None:
        """The next ticket, stored; None when no operator has anything to propose.

        A ticket that is told already records a failure of its operator, or a proposal of what this
        run holds already: nothing is to be evaluated, and the next ask goes on from there.
        """
        asked = self._next_outcome()
        return None if asked is None else self._record(*asked)

    def offer(self, source: str, *, operator: str = "offered", note: str = "") -> Ticket:
        """A ticket for a program that nobody asked for."""
        return self._record(operator, Proposal(program=Program(source), note=note))

    def again(self, elite: Elite, *, operator: str, fidelity: Fidelity) -> Ticket:
        """A ticket that evaluates a known instance once more, in the open."""
        program = Program(self.store.source(elite.program))
        return self._record(
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
        offer = self.archive.offer(elite) if elite else None
        self.store.tell(ticket, elite, offer)
        if elite and offer:
            self._ranking.update(elite, offer)
        return offer

    def known(self, request: EvaluationRequest, evaluator: Evaluator) -> Evaluation | None:
        """A stored verdict on the very same instance, task, device class and evaluator.

        Never where other sources are timed along: the key does not say which they were.
        """
        if request.opponents or request.fidelity is Fidelity.VERIFY:
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
        return [
            self._record(OPPONENT, Proposal(program=Program(source), note=name), repeat=True)
            for name, source in sorted(self._opponents.items())[judged:]
        ]

    def open_tickets(self) -> list[Ticket]:
        """What an earlier process left behind: evaluated ones are told now, the rest returned."""
        waiting = []
        for ticket in self.store.open_tickets(self.run.id):
            if ticket.evaluation is not None:
                self.tell(ticket, ticket.evaluation)
            elif ticket.state is TicketState.PROPOSED:
                waiting.append(ticket)
            else:  # asked, and the process died before the operator had answered
                self.store.propose(ticket, Failed("the process ended before it was proposed"))
        return waiting

    def _next_outcome(self) -> tuple[str, Proposal | Failed] | None:
        elites = self._ranking.elites
        for name in order(self._operators, lambda name: self._rng(f"schedule/{name}")):
            operator = self._operators[name].operator
            for parents in self._parent_choices(name, operator.parents, elites):
                outcome = operator.propose(
                    Context(
                        task=self.run.task,
                        parents=parents,
                        elites=elites,
                        facts=self._facts,
                        rng=self._rng(f"operator/{name}"),
                        sequence=self._sequence,
                    )
                )
                if not isinstance(outcome, Declined):
                    return name, outcome
        return None

    def _parent_choices(
        self, name: str, count: int, elites: Sequence[Elite]
    ) -> Iterator[tuple[Elite, ...]]:
        """The policy's parents, then, should the operator decline them, the best few others.

        Without the second part a greedy policy would end a search as soon as there is nothing
        left to do with the single best program.
        """
        chosen = self._selection.select(elites, count, self._rng(f"selection/{name}"))
        yield chosen
        if not count:
            return
        window = elites[: MAX_PARENT_CHOICES + count]
        for start in range(len(window) - count + 1):
            others = tuple(window[start : start + count])
            if others != chosen:
                yield others

    def _record(self, operator: str, outcome: Proposal | Failed, *, repeat: bool = False) -> Ticket:
        parents = outcome.parents if isinstance(outcome, Proposal) else ()
        if isinstance(outcome, Proposal) and not repeat and (why := self._duplicate(outcome)):
            outcome = Failed(f"duplicate: {why}")
        ticket = self.store.record(self.run.id, operator, parents, outcome)
        self._sequence = ticket.sequence + 1
        return ticket

    def _duplicate(self, proposal: Proposal) -> str:
        """Why the proposal is nothing new; empty where it is.

        A screened instance may be asked for again at full fidelity.
        """
        trials = self._facts.trials(proposal.program.digest)
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

    def _rng(self, name: str) -> random.Random:
        return stream(self.run.seed, name, self._sequence)


def _proposal(ticket: Ticket) -> Proposal:
    if ticket.proposal is None:
        raise ValueError(f"ticket {ticket.sequence} holds no proposal")
    return ticket.proposal
