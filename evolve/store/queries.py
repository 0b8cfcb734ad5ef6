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
from evolve.core.records import Arm, Cost, Credit, Judge, RunRow, Ticket
from evolve.store import dump, maintenance
from evolve.store.database.backend import Database
from evolve.store.tables import (
    ancestry,
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
    warm_start,
)


class Queries:
    """All that can be read of the runs in one database file; `Store` adds the writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def location(self) -> str:
        """The file, or the server's URL without a password: what `--store` takes."""
        return self._database.location

    @property
    def folder(self) -> Path:
        """Where files about the runs are written, such as reports."""
        return self._database.folder

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
        return self._database.read(runs.find, name)

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        return self._database.read(runs.listing)

    def progress(self, run: int) -> Progress:
        """The run's counters; one row, however long the run is."""
        return self._database.read(runs.progress, run)

    # Tickets

    def open_tickets(self, run: int) -> list[Ticket]:
        """Tickets that are not told: those with a verdict as it came, then the others as asked."""
        return self._database.read(tickets.still_open, run)

    def ticket(self, run: int, sequence: int) -> Ticket:
        """A step as a ticket, with everything that it asked and was answered."""
        return self._database.read(tickets.at, run, sequence)

    def is_overtaken(self, ticket: Ticket) -> bool:
        """Whether the run has had verdicts since the ticket's newest request was composed."""
        return self._database.read(requests.is_overtaken, ticket.id)

    def texts(self, ticket: Ticket, round_number: int) -> list[ModelRequest]:
        """All texts in which a round of the ticket was asked, in order."""
        return self._database.read(requests.of_round, ticket.id, round_number)

    def pending_calls(self, run: int) -> list[int]:
        """Calls that were committed and have no outcome."""
        return self._database.read(calls.pending, run)

    # Facts

    def next_sequence(self, run: int) -> int:
        """The sequence number that the run's next ticket will have."""
        return self._database.read(runs.asked, run)

    def made_by(self, run: int, operator: str) -> list[int]:
        """The sequence numbers of an operator's tickets, in order."""
        return self._database.read(facts.made_by, run, operator)

    def recorded(
        self, run: int, instance: str, fidelity: Fidelity, repeat: int = 0
    ) -> Evaluation | None:
        """This run's own evaluation of an instance after `repeat` earlier ones, or the last."""
        return self._database.read(facts.recorded, run, instance, fidelity, repeat)

    def repeat(self, run: int, sequence: int) -> int:
        """How many earlier tickets asked for the same instance as this one, at its fidelity."""
        return self._database.read(facts.repeat, run, sequence)

    def judge(self, run: int) -> Judge:
        """Device class and evaluator version of the run's evaluations; UsageError without any."""
        return self._database.read(facts.judge, run)

    def environment(self, run: int) -> dict[str, str]:
        """The device by the newest evaluation; empty before there is one."""
        return self._database.read(facts.environment, run)

    def source(self, program: str) -> str:
        """The text of a program, by digest."""
        return self._database.read(programs.source, program)

    def trials(self, run: int, program: str) -> Sequence[Trial]:
        """Every instance of the program that the run asked for, in order, pending ones too."""
        return self._database.read(facts.trials, run, program)

    def proposals(self, run: int, operator: str) -> int:
        """How many the operator has made in this run, failures and those under way included."""
        return self._database.read(requests.proposals, run, operator)

    def seen(self, run: int, instance: str) -> bool:
        """Whether this run holds a proposal of the instance (digest) at any fidelity."""
        return self._database.read(facts.seen, run, instance)

    def near_duplicate_of(self, run: int, program: Program) -> str | None:
        """Another program of this run that differs in layout, comments or tunable values only."""
        return self._database.read(facts.near_duplicate_of, run, program)

    def standing(self, run: int, ticket: Ticket) -> Elite | None:
        """The elite that a ticket's program makes: its best instance, full evaluations pooled.

        Those of told tickets and of this one, which is about to be told. None if none holds.
        """
        return self._database.read(program_stats.of_program, run, ticket)

    def credit(self, ticket: Ticket) -> Credit | None:
        """The credit of the ticket that was first to measure the same instance."""
        return self._database.read(arms.credit_of, ticket.id)

    def pooled(self, run: int, ticket: Ticket) -> Interval | None:
        """The fitness of an instance with the verdict that a ticket is told; None: refuted."""
        return self._database.read(program_stats.of_instance, run, ticket)

    def visits(self, run: int, program: str) -> dict[str, Visits]:
        """The visits of a program, then of its ancestors along main parents."""
        return self._database.read(parent_stats.of_line, run, program)

    def held_visits(self, run: int) -> dict[str, Visits]:
        """The visits of every program that the archive holds."""
        return self._database.read(parent_stats.of_held, run)

    def held_links(self, run: int) -> dict[str, str]:
        """The main parent of every program that the archive holds, and of their ancestors."""
        return self._database.read(parent_stats.links, run)

    def arms(self, run: int) -> list[Arm]:
        """Costs and gains of each method's operators with each model, in told tickets."""
        return self._database.read(arms.of_run, run)

    def attempt_evaluation(self, run: int, program: str) -> Evaluation | None:
        """The run's evaluation of a program's best instance, else its newest, without samples."""
        return self._database.read(attempts.evaluation_of, run, program)

    def recent(
        self, run: int, limit: int, *, operator: str | None = None, failed: bool | None = None
    ) -> list[Attempt]:
        """The newest told steps, newest first; see `evolve.core.protocols.Facts`."""
        return self._database.read(attempts.recent, run, limit, operator, failed)

    def children(self, run: int, program: str, limit: int) -> list[Attempt]:
        """The newest steps that had the program as their main parent, newest first."""
        return self._database.read(attempts.children, run, program, limit)

    def line(self, run: int, program: str, limit: int) -> list[Attempt]:
        """How a program came to be along main parents, oldest first."""
        return self._database.read(attempts.ancestors, run, program, limit)

    def exchanges(self, run: int, operator: str, purpose: str, limit: int) -> list[Exchange]:
        """The newest completed calls of an operator for a purpose, newest first."""
        return self._database.read(calls.exchanges, run, operator, purpose, limit)

    def requests(self, run: int, operator: str, purpose: str, limit: int) -> list[ModelRequest]:
        """An operator's newest requests for a purpose, newest first, with any outcome or none."""
        return self._database.read(requests.newest, run, operator, purpose, limit)

    def recorded_reply(self, run: int, key: str, sample: int) -> ModelReply | None:
        """The run's reply to a request by its key and sample number; None if it has none."""
        return self._database.read(calls.recorded, run, key, sample)

    def cached(
        self,
        instance: str,
        task_revision: str,
        device_class: str,
        evaluator_version: str,
        fidelity: str,
    ) -> Evaluation | None:
        """The only evaluation with this key, of any run, with its cost then; else None."""
        return self._database.read(
            evaluations.cached, instance, task_revision, device_class, evaluator_version, fidelity
        )

    # Archive

    def slots(self, run: int) -> dict[str, Elite]:
        """The archive's state, in the order of the slots' names."""
        return self._database.read(archive.slots, run)

    def elite(self, run: int, program: str) -> Elite | None:
        """A program as it was offered last, also after it was evicted."""
        return self._database.read(archive.elite, run, program)

    def offers(self, run: int) -> Iterator[tuple[Elite, Offer]]:
        """Every offer in the order of telling, read page by page."""
        return archive.offers(self._database, run)

    # Lineage

    def steps(self, run: int) -> Iterator[Step]:
        """Every ticket as a step, in sequence order, read page by page."""
        return lineage.steps(self._database, run)

    def step(self, run: int, sequence: int) -> Step:
        return self._database.read(lineage.step, run, sequence)

    def ancestors(self, run: int, program: str) -> list[Step]:
        """The steps that first produced each ancestor, the program's own last."""
        return self._database.read(lineage.ancestors, run, program)

    def line_to(self, run: int, program: str) -> list[int]:
        """The steps that made a program and its main ancestors, in order."""
        return self._database.read(ancestry.line_to, run, program)

    def models_behind(self, program: str) -> frozenset[str]:
        """The models that were asked for a program or one of its ancestors in any run."""
        return self._database.read(ancestry.models_behind, program)

    def judged_steps(self, run: int, task_revision: str, judge: Judge) -> list[Ticket]:
        """The steps whose verdicts hold for such a judge, in the order of telling.

        Without verifications and the user's own baseline, and without raw samples, which stay
        where they were taken.
        """
        return self._database.read(warm_start.judged_steps, run, task_revision, judge)

    def evaluation(self, run: int, sequence: int) -> Evaluation | None:
        """The whole evaluation of a step, with samples; None if it has none (yet)."""
        return self._database.read(lineage.evaluation_of, run, sequence)

    def costs(self, run: int | None = None) -> list[Cost]:
        """Spending by run, operator and model; of one run, or of all."""
        return self._database.read(costs.everything, run)

    def tokens(self, run: int) -> dict[int, int]:
        """Tokens that the calls of each step were charged, by its sequence number."""
        return self._database.read(costs.tokens, run)

    # Dump and size

    def dump(self, run: int, *, canonical: bool = False) -> Iterator[str]:
        """The run as JSON lines; canonical: without what differs where the search is replayed."""
        return dump.lines(self._database, run, canonical=canonical)

    def size(self) -> dict[str, int]:
        """Bytes on disk by kind."""
        texts = self._database.read(maintenance.texts)
        whole = self._database.bytes_on_disk()
        return texts | whole | {"records": whole["records"] - sum(texts.values())}
