"""Read access to a database of searches."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from evolve.core.elites import Visits
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import Step
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelReply, ModelRequest
from evolve.core.program import Program
from evolve.core.protocols import Attempt, Elite, Offer, Progress, Trial
from evolve.store import dump, maintenance
from evolve.store.database.connection import Database
from evolve.store.rows import Arm, Cost, Credit, Judge, RunRow, Ticket
from evolve.store.tables import (
    archive,
    arms,
    attempts,
    calls,
    costs,
    evaluations,
    facts,
    lineage,
    parent_stats,
    program_stats,
    programs,
    requests,
    runs,
    tickets,
)


class Queries:
    """All that can be read of the runs in one database file; `Store` adds the writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def notices(self) -> Sequence[str]:
        """Lines that a person should see once, e.g. that the write-ahead log does not work here."""
        return tuple(self._database.notices)

    def snapshot(self) -> AbstractContextManager[None]:
        """One view for all that is read in the block, which must not write; quicker than many."""
        return self._database.snapshot()

    # Runs

    def run(self, name: str | None = None) -> RunRow:
        """The run of this name, or the newest."""
        with self._database.read() as connection:
            return runs.find(connection, name)

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        with self._database.read() as connection:
            return runs.listing(connection)

    def progress(self, run: int) -> Progress:
        """The run's counters; one row, however long the run is."""
        with self._database.read() as connection:
            return runs.progress(connection, run)

    # Tickets

    def open_tickets(self, run: int) -> list[Ticket]:
        """Tickets that are not told: those with a verdict as it came, then the others as asked."""
        with self._database.read() as connection:
            return tickets.still_open(connection, run)

    def ticket(self, run: int, sequence: int) -> Ticket:
        """A step as a ticket, with everything that it asked and was answered."""
        with self._database.read() as connection:
            lineage.step(connection, run, sequence)  # says which there are
            return tickets.at(connection, run, sequence)

    def is_overtaken(self, ticket: Ticket) -> bool:
        """Whether the run has had verdicts since the ticket's newest request was composed."""
        with self._database.read() as connection:
            return requests.is_overtaken(connection, requests.rows_of(connection, ticket.id)[-1].id)

    def texts(self, ticket: Ticket, round_number: int) -> list[ModelRequest]:
        """All texts in which a round of the ticket was asked, in order."""
        with self._database.read() as connection:
            rows = requests.texts_of(connection, ticket.id)
            return [requests.load(connection, row) for row in rows if row.round == round_number]

    def pending_calls(self, run: int) -> list[int]:
        """Calls that were committed and have no outcome."""
        with self._database.read() as connection:
            return calls.pending(connection, run)

    # Facts

    def next_sequence(self, run: int) -> int:
        """The sequence number that the run's next ticket will have."""
        with self._database.read() as connection:
            return runs.asked(connection, run)

    def made_by(self, run: int, operator: str) -> list[int]:
        """The sequence numbers of an operator's tickets, in order."""
        with self._database.read() as connection:
            return facts.made_by(connection, run, operator)

    def recorded(
        self, run: int, instance: str, fidelity: Fidelity, repeat: int = 0
    ) -> Evaluation | None:
        """This run's own evaluation of an instance after `repeat` earlier ones, or the last."""
        with self._database.read() as connection:
            return facts.recorded(connection, run, instance, fidelity, repeat)

    def repeat(self, run: int, sequence: int) -> int:
        """How many earlier tickets asked for the same instance as this one, at its fidelity."""
        with self._database.read() as connection:
            return facts.repeat(connection, run, sequence)

    def judge(self, run: int) -> Judge:
        """Device class and evaluator version of the run's evaluations; UsageError without any."""
        with self._database.read() as connection:
            return facts.judge(connection, run)

    def environment(self, run: int) -> dict[str, str]:
        """The device by the newest evaluation; empty before there is one."""
        with self._database.read() as connection:
            return facts.environment(connection, run)

    def source(self, program: str) -> str:
        """The text of a program, by digest."""
        with self._database.read() as connection:
            return programs.source(connection, program)

    def trials(self, run: int, program: str) -> Sequence[Trial]:
        """Every instance of the program that the run asked for, in order, pending ones too."""
        with self._database.read() as connection:
            return facts.trials(connection, run, program)

    def proposals(self, run: int, operator: str) -> int:
        """How many the operator has made in this run, failures and those under way included."""
        with self._database.read() as connection:
            under_way = requests.under_way(connection, run, operator)
            return runs.proposals(connection, run, operator) + under_way

    def seen(self, run: int, instance: str) -> bool:
        """Whether this run holds a proposal of the instance (digest) at any fidelity."""
        with self._database.read() as connection:
            return facts.seen(connection, run, instance)

    def near_duplicate_of(self, run: int, program: Program) -> str | None:
        """Another program of this run that differs in layout, comments or tunable values only."""
        with self._database.read() as connection:
            return facts.near_duplicate_of(connection, run, program)

    def standing(self, run: int, ticket: Ticket) -> Elite | None:
        """The elite that a ticket's program makes: its best instance, full evaluations pooled.

        Those of told tickets and of this one, which is about to be told. None if none holds.
        """
        with self._database.read() as connection:
            return program_stats.of_program(connection, run, ticket)

    def credit(self, ticket: Ticket) -> Credit | None:
        """The credit of the ticket that was first to measure the same instance."""
        with self._database.read() as connection:
            return arms.credit_of(connection, ticket.id)

    def pooled(self, run: int, ticket: Ticket) -> Interval | None:
        """The fitness of an instance with the verdict that a ticket is told; None: refuted."""
        with self._database.read() as connection:
            return program_stats.of_instance(connection, run, ticket)

    def visits(self, run: int, program: str) -> dict[str, Visits]:
        """The visits of a program, then of its ancestors along main parents."""
        with self._database.read() as connection:
            return parent_stats.of_line(connection, run, program)

    def held_visits(self, run: int) -> dict[str, Visits]:
        """The visits of every program that the archive holds."""
        with self._database.read() as connection:
            return parent_stats.of_held(connection, run)

    def held_links(self, run: int) -> dict[str, str]:
        """The main parent of every program that the archive holds, and of their ancestors."""
        with self._database.read() as connection:
            return parent_stats.links(connection, run)

    def arms(self, run: int) -> list[Arm]:
        """Costs and gains of each method's operators with each model, in told tickets."""
        with self._database.read() as connection:
            return arms.of_run(connection, run)

    def attempt_evaluation(self, run: int, program: str) -> Evaluation | None:
        """The run's evaluation of a program's best instance, else its newest, without samples."""
        with self._database.read() as connection:
            return attempts.evaluation_of(connection, run, program)

    def recent(
        self, run: int, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> list[Attempt]:
        """The newest told steps, newest first; see `evolve.core.protocols.Facts`."""
        with self._database.read() as connection:
            return attempts.recent(connection, run, limit, operator, failed)

    def children(self, run: int, program: str, limit: int) -> list[Attempt]:
        """The newest steps that had the program as their main parent, newest first."""
        with self._database.read() as connection:
            return attempts.children(connection, run, program, limit)

    def line(self, run: int, program: str, limit: int) -> list[Attempt]:
        """How a program came to be along main parents, oldest first."""
        with self._database.read() as connection:
            return attempts.ancestors(connection, run, program, limit)

    def exchanges(self, run: int, operator: str, purpose: str, limit: int) -> list[Exchange]:
        """The newest completed calls of an operator for a purpose, newest first."""
        with self._database.read() as connection:
            return calls.exchanges(connection, run, operator, purpose, limit)

    def requests(self, run: int, operator: str, purpose: str, limit: int) -> list[ModelRequest]:
        """An operator's newest requests for a purpose, newest first, with any outcome or none."""
        with self._database.read() as connection:
            return requests.newest(connection, run, operator, purpose, limit)

    def recorded_reply(self, run: int, key: str, sample: int) -> ModelReply | None:
        """The run's reply to a request by its key and sample number; None if it has none."""
        with self._database.read() as connection:
            return calls.recorded(connection, run, key, sample)

    def cached(
        self,
        instance: str,
        task_revision: str,
        device_class: str,
        evaluator_version: str,
        fidelity: str,
    ) -> Evaluation | None:
        """The only evaluation with this key, of any run, with its cost then; else None."""
        with self._database.read() as connection:
            return evaluations.cached(
                connection, instance, task_revision, device_class, evaluator_version, fidelity
            )

    # Archive

    def slots(self, run: int) -> dict[str, Elite]:
        """The archive's state, in the order of the slots' names."""
        with self._database.read() as connection:
            return archive.slots(connection, run)

    def elite(self, run: int, program: str) -> Elite | None:
        """A program as it was offered last, also after it was evicted."""
        with self._database.read() as connection:
            return archive.elite(connection, run, program)

    def offers(self, run: int) -> Iterator[tuple[Elite, Offer]]:
        """Every offer in the order of telling, read page by page."""
        return archive.offers(self._database, run)

    # Lineage

    def steps(self, run: int) -> Iterator[Step]:
        """Every ticket as a step, in sequence order, read page by page."""
        return lineage.steps(self._database, run)

    def step(self, run: int, sequence: int) -> Step:
        with self._database.read() as connection:
            return lineage.step(connection, run, sequence)

    def ancestors(self, run: int, program: str) -> list[Step]:
        """The steps that first produced each ancestor, the program's own last."""
        with self._database.read() as connection:
            return lineage.ancestors(connection, run, program)

    def evaluation(self, run: int, sequence: int) -> Evaluation | None:
        """The whole evaluation of a step, with samples; None if it has none (yet)."""
        with self._database.read() as connection:
            return lineage.evaluation_of(connection, run, sequence)

    def costs(self, run: int | None = None) -> list[Cost]:
        """Spending by run, operator and model; of one run, or of all."""
        with self._database.read() as connection:
            return costs.everything(connection, run)

    def tokens(self, run: int) -> dict[int, int]:
        """Tokens that the calls of each step were charged, by its sequence number."""
        with self._database.read() as connection:
            return costs.tokens(connection, run)

    # Dump and size

    def dump(self, run: int, *, canonical: bool = False) -> Iterator[str]:
        """The run as JSON lines; canonical: without what differs where the search is replayed."""
        return dump.lines(self._database, run, canonical=canonical)

    def size(self) -> dict[str, int]:
        """Bytes on disk by kind."""
        return maintenance.size(self._database)
