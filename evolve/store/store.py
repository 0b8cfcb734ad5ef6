"""The database of searches: every fact is a row before anything is done with it."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.evaluation import Evaluation
from evolve.core.model import ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.protocols import Elite, Failed, Offer, Proposal
from evolve.core.task import Task
from evolve.store import maintenance
from evolve.store.database import lease
from evolve.store.database.connection import Database
from evolve.store.queries import Queries
from evolve.store.rows import Credit, Pruned, RunRow, Ticket
from evolve.store.tables import runs, tickets


class Store(Queries):
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
        super().__init__(database)
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

    # Runs

    def create_run(self, *, name: str, task: Task, config: Mapping[str, Any], seed: int) -> RunRow:
        """Add a run; its fitness is measured against `config["baseline"]` (default `eager`)."""
        with self._database.write() as connection:
            return runs.create(connection, name=name, task=task, config=config, seed=seed)

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

    # Maintenance

    def backup(self, path: str | Path) -> None:
        """Copy the database to a new file, consistent also while a search is writing."""
        maintenance.backup(self._database, Path(path))

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
        """Drop raw samples and feedback but of the `keep` best elites (None: all) and ancestors."""
        return maintenance.prune(self._database, run, self._owner, keep)

    def upgrade(self) -> str:
        """The change made to the file's schema, as a phrase; other schemas are not opened."""
        return maintenance.upgrade(self._database)
