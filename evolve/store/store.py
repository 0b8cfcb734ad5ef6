"""The database of searches: every fact is a row before anything is done with it."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.elites import Visits
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.lineage import Step
from evolve.core.measurement import Interval
from evolve.core.model import Exchange, ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.program import Program
from evolve.core.protocols import Attempt, Elite, Failed, Offer, Progress, Proposal, Trial
from evolve.core.task import Task
from evolve.store import dump, maintenance
from evolve.store.database import lease
from evolve.store.database.connection import Database
from evolve.store.rows import Arm, Cost, Credit, Judge, Pruned, RunRow, Ticket
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


class Store:
    """One database file with any number of runs.

    Every method that changes something has committed when it returns. A run is written to by one
    process at a time: `claim` it first. Programs and evaluations are shared between runs.

    Raises:
        UsageError: a file, run or program that is not there or not for us, with the remedy.
        StoreError: the file cannot be read or written, a ticket is not in the state that the call
            needs, or the run was taken over by another process.

    Example:
        >>> store = Store.open("searches.db", create=True)  # doctest: +SKIP
        >>> run = store.create_run(name="first", task=task, config={}, seed=0)  # doctest: +SKIP
        >>> store.claim(run.id)  # doctest: +SKIP
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = secrets.token_hex(16)

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False, read_only: bool = False) -> "Store":
        """Open the file at `path`; with `create` make it, and its folder, if it is missing.

        With both, nothing is made, but a file without tables is no error either.
        """
        return cls(Database(Path(path), create=create, read_only=read_only))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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

    def create_run(self, *, name: str, task: Task, config: Mapping[str, Any], seed: int) -> RunRow:
        """Add a run; its fitness is measured against `config["baseline"]` (default `eager`)."""
        with self._database.write() as connection:
            return runs.create(connection, name=name, task=task, config=config, seed=seed)

    def run(self, name: str | None = None) -> RunRow:
        """The run of this name, or the newest."""
        with self._database.read() as connection:
            return runs.find(connection, name)

    def runs(self) -> list[RunRow]:
        """All runs, oldest first."""
        with self._database.read() as connection:
            return runs.everyone(connection)

    def claim(self, run: int) -> None:
        """Become the one process that continues the run, which then counts as running.

        A lease whose heartbeat is older than 30 s, or whose process has died on this machine, is
        taken over.

        Raises:
            UsageError: another process is continuing it.
        """
        with self._database.write() as connection:
            lease.claim(connection, run, self._owner)
            runs.set_state(connection, run, "running", "")

    def heartbeat(self, run: int, active_s: float) -> None:
        """Keep the lease (call at least every 10 s), and add active seconds to the run's time.

        From the first one until `release`, every write first sees that nothing else has taken the
        file away or overwritten it.
        """
        with self._database.write() as connection:
            lease.beat(connection, run, self._owner)
            runs.count_active(connection, run, active_s)
        self._database.watch(self._owner)

    def release(self, run: int, state: str, reason: str) -> None:
        """End the claim. `state` is `finished` or `interrupted`, `reason` a phrase for people."""
        with self._database.write() as connection:
            lease.beat(connection, run, self._owner)
            runs.set_state(connection, run, state, reason)
            lease.give_up(connection, run, self._owner)
        self._database.unwatch()

    def reconfigure(self, run: int, config: Mapping[str, Any]) -> None:
        """Describe a claimed run by another configuration from now on."""
        with self._database.write() as connection:
            lease.beat(connection, run, self._owner)
            runs.reconfigure(connection, run, config)

    def record_audit(self, run: int, findings: Sequence[Mapping[str, str]]) -> None:
        """Keep the findings of the task's audit, in a run that was created without one."""
        with self._database.write() as connection:
            lease.fence_run(connection, run, self._owner)
            runs.record_audit(connection, run, findings)

    def record_compiled(self, run: int, compiled: Sequence[Compiled]) -> None:
        """Keep the compiled reference of the task, in a run that began without."""
        with self._database.write() as connection:
            lease.fence_run(connection, run, self._owner)
            runs.record_compiled(connection, run, compiled)

    def progress(self, run: int) -> Progress:
        """The run's counters; one row, however long the run is."""
        with self._database.read() as connection:
            return runs.progress(connection, run)

    # Tickets

    def ask(self, run: int, operator: str, parents: Sequence[str], *, method: str = "") -> Ticket:
        """Open the next ticket for an operator and the parents (digests) selected for it."""
        with self._database.write() as connection:
            return tickets.ask(connection, run, self._owner, operator, parents, method=method)

    def request(
        self,
        run: int,
        operator: str,
        parents: Sequence[str],
        request: ModelRequest,
        model: str,
        *,
        method: str = "",
    ) -> list[Ticket]:
        """Open a ticket for each sample of an operator's request to a model.

        `model` is the scheduler's pick and no empty text; `request.model` may be another by role.
        """
        chosen = {"model": model, "method": method}
        with self._database.write() as connection:
            return [
                tickets.request(connection, run, self._owner, operator, parents, request, **chosen)
                for _ in range(request.samples)
            ]

    def begin_call(self, ticket: Ticket, worst: Reservation) -> int:
        """Commit a call for a ticket's open request before it is sent; returns the call's id."""
        with self._database.write() as connection:
            return tickets.begin_call(connection, ticket, self._owner, worst)

    def end_call(self, call: int, reply: ModelReply) -> Ticket:
        """Store the result of a call, and charge it; a call that has ended keeps its outcome.

        The ticket is replied then, or still asked where the call was not accepted
        (`CallStatus.UNAVAILABLE`).
        """
        with self._database.write() as connection:
            return tickets.end_call(connection, call, self._owner, reply)

    def recompose(self, ticket: Ticket, parents: Sequence[str], request: ModelRequest) -> Ticket:
        """Ask a ticket's first request, which nothing has answered, in another text.

        The text before is kept, with the parents that it was about; `answer` still takes a reply
        to it.
        """
        with self._database.write() as connection:
            return tickets.recompose(connection, ticket, self._owner, parents, request)

    def is_overtaken(self, ticket: Ticket) -> bool:
        """Whether the run has had verdicts since the ticket's newest request was composed."""
        with self._database.read() as connection:
            return requests.is_overtaken(connection, requests.rows_of(connection, ticket.id)[-1].id)

    def texts(self, ticket: Ticket, round_number: int) -> list[ModelRequest]:
        """All texts in which a round of the ticket was asked, in order."""
        with self._database.read() as connection:
            rows = requests.texts_of(connection, ticket.id)
            return [requests.load(connection, row) for row in rows if row.round == round_number]

    def answer(self, ticket: Ticket, reply: ModelReply, *, key: str = "") -> Ticket:
        """Store a reply obtained elsewhere: a call without a cost beyond the one it states.

        `key` is that of the text which it answers; of the one that stands if left out.
        """
        with self._database.write() as connection:
            if key and ticket.request is not None and key != ticket.request.key:
                tickets.answers_text(connection, ticket, self._owner, key)
            worst = Reservation(tokens=0, usd=0.0)
            call = tickets.begin_call(connection, ticket, self._owner, worst)
            return tickets.end_call(connection, call, self._owner, reply)

    def pending_calls(self, run: int) -> list[int]:
        """Calls that were committed and have no outcome."""
        with self._database.read() as connection:
            return calls.pending(connection, run)

    def propose(
        self,
        ticket: Ticket,
        outcome: Proposal | Failed | ModelRequest,
        reading: ReplyStatus | None = None,
    ) -> Ticket:
        """Record the operator's proposal, and its reading of a reply.

        A failure (a duplicate is one too) closes the ticket; a request opens its next round.
        """
        with self._database.write() as connection:
            return tickets.propose(connection, ticket, self._owner, outcome, reading)

    def record(
        self,
        run: int,
        operator: str,
        parents: Sequence[str],
        outcome: Proposal | Failed,
        *,
        method: str = "",
        tuning: bool = False,
    ) -> Ticket:
        """`ask` and `propose` in one transaction, for operators that answer at once.

        A `tuning` is no proposal of the run (`Progress`).
        """
        with self._database.write() as connection:
            asked = (connection, run, self._owner, operator, parents)
            return tickets.record(*asked, outcome, method=method, tuning=tuning)

    def withdraw_evaluation(self, ticket: Ticket) -> None:
        """Take back a `start_evaluation` that was given up for our own reasons (a drain)."""
        with self._database.write() as connection:
            tickets.withdraw_evaluation(connection, ticket, self._owner)

    def start_evaluation(self, ticket: Ticket) -> int:
        """Count an attempt before it is made; returns the attempts so far with this one."""
        with self._database.write() as connection:
            return tickets.start_evaluation(connection, ticket, self._owner)

    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket:
        """Record the verdict and count it; a ticket that has one already keeps that one."""
        with self._database.write() as connection:
            return tickets.evaluated(connection, ticket, self._owner, evaluation)

    def tell(
        self,
        ticket: Ticket,
        elite: Elite | None,
        offer: Offer | None,
        credit: Credit | None = None,
    ) -> None:
        """Close an evaluated ticket with the archive's answer; telling again changes nothing.

        The slots follow from the offer (`evolve.core.protocols.Offer`). `credit` is what this
        ticket brought its `Arm`, or an earlier one by what is known now.
        """
        with self._database.write() as connection:
            tickets.tell(connection, ticket, self._owner, elite, offer, credit)

    def open_tickets(self, run: int) -> list[Ticket]:
        """Tickets that are not told: those with a verdict as it came, then the others as asked."""
        with self._database.read() as connection:
            return tickets.still_open(connection, run)

    def ticket(self, run: int, sequence: int) -> Ticket:
        """A step as a ticket, with everything that it asked and was answered."""
        with self._database.read() as connection:
            lineage.step(connection, run, sequence)  # says which there are
            return tickets.at(connection, run, sequence)

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

    def twin(self, run: int, program: Program) -> str | None:
        """Another program of this run that differs in layout, comments or tunable values only."""
        with self._database.read() as connection:
            return facts.twin(connection, run, program)

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

    # Maintenance

    def dump(self, run: int, *, canonical: bool = False) -> Iterator[str]:
        """The run as JSON lines; canonical: without what differs where the search is replayed."""
        return dump.lines(self._database, run, canonical=canonical)

    def backup(self, path: str | Path) -> None:
        """Copy the database to a new file, consistent also while a search is writing."""
        maintenance.backup(self._database, Path(path))

    def size(self) -> dict[str, int]:
        """Bytes on disk by kind."""
        return maintenance.size(self._database)

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
        """Drop raw samples and feedback but of the `keep` best elites (None: all) and ancestors."""
        return maintenance.prune(self._database, run, self._owner, keep)

    def upgrade(self) -> str:
        """The change made to the file's schema, as a phrase; other schemas are not opened."""
        return maintenance.upgrade(self._database)
