"""The gains by which schedules compare methods, operators and models."""

import math
from dataclasses import dataclass, replace

from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.measurement import Interval
from evolve.core.protocols import Elite, Proposal
from evolve.core.records import Credit
from evolve.core.run_store import RunStore
from evolve.search.population import LivePopulation
from evolve.store import Ticket
from evolve.store.tables.evaluations import refutes

_BASELINE = Interval(0.0, 0.0, 0.0)
"""The fitness of the baseline itself, the reference if there is no other program."""


@dataclass(frozen=True, slots=True)
class CreditRule:
    """Credits tickets of a run with the gains that their evaluations show.

    Attributes:
        store: where earlier credits are recorded.
        run: the run, by number.
        held: the population of the archive: parents and the leader are the references.
        baseline: the side of the timing that fitness is measured against.
    """

    store: RunStore
    run: int
    held: LivePopulation
    baseline: str

    def credit(self, ticket: Ticket, proposal: Proposal, evaluation: Evaluation) -> Credit | None:
        """The gains, by the verdict, that are credited to the maker of the instance.

        How far it lies above no gain over the parent, and over the leader. Re-evaluations only
        correct it: the references stay those of the first verdict.
        """
        fitness = evaluation.fitness(self.baseline)
        if proposal.is_reevaluation:
            return self._corrected(ticket, proposal, evaluation)
        if fitness is None or proposal.fidelity is not Fidelity.SEARCH:
            return None
        if not evaluation.device_time_s:
            return None  # known before: a free verdict says nothing about gain per cost
        parents = ticket.parents or proposal.parents
        parent = self._offered(parents[0]) if parents else None
        best = next(iter(self.held), None)
        leader = best.fitness if best else _BASELINE
        reference = parent.fitness if parent and parent.evaluations else leader
        return _rated(Credit(ticket=ticket.id, parent=reference, leader=leader), fitness)

    def _corrected(
        self, ticket: Ticket, proposal: Proposal, evaluation: Evaluation
    ) -> Credit | None:
        """The credit for an instance that was evaluated again; verifications stand for themselves.

        None if there is none, or nothing new.
        """
        fitness = evaluation.fitness(self.baseline)
        if fitness is None and not refutes(evaluation):
            return None
        credit = self.store.credit(ticket)
        if credit is None or fitness is None:
            return credit and replace(credit, gain=0.0, lead=0.0)
        if proposal.fidelity is Fidelity.SEARCH:
            fitness = self.store.pooled(self.run, ticket)
        return _rated(credit, fitness) if fitness else replace(credit, gain=0.0, lead=0.0)

    def _offered(self, program: str) -> Elite | None:
        """A program as it was offered last, held or not."""
        return self.held.elite(program) or self.store.elite(self.run, program)


def _rise(fitness: Interval, reference: Interval) -> float:
    """The part of a gain that the intervals of both sides allow to believe, in log speedup."""
    spread = math.hypot(fitness.value - fitness.low, reference.high - reference.value)
    return max(fitness.value - reference.value - spread, 0.0)


def _rated(credit: Credit, fitness: Interval) -> Credit:
    gain, lead = _rise(fitness, credit.parent), _rise(fitness, credit.leader)
    return replace(credit, gain=gain, lead=lead)
