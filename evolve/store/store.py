"""The database of searches: every fact is a row before anything is done with it."""

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.evaluation import Evaluation
from evolve.core.model import ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.protocols import Elite, Failed, Offer, Proposal
from evolve.core.records import Credit, Pruned, RunRow, Ticket
from evolve.core.task import Task
from evolve.store import copying
from evolve.store.database.backend import Database
from evolve.store.database.schema import VERSION
from evolve.store.opening import open_database
from evolve.store.queries import Queries
from evolve.store.tables import runs, tickets, warm_start


class Store(Queries):
    """One database, a file or on a server, with any number of runs.

    Every method that changes something has committed when it returns. A run is written to by one
    process at a time: `claim` it first. Programs and evaluations are shared between runs.

    Raises:
        UsageError: a file, run or program that is not there or not for us, with the remedy.
        StoreError: the database cannot be read or written, a ticket is not in the state that the
            call needs, or the run was taken over by another process.

    Example:
        >>> store = Store.open("searches.db", create=True)  # doctest: +SKIP
        >>> run = store.create_run(name="first", task=task, config={}, seed=0)  # doctest: +SKIP
        >>> store.claim(run.id)  # doctest: +SKIP
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._owner = secrets.token_hex(16)

    @classmethod
    def open(
        cls, location: str | Path, *, create: bool = False, read_only: bool = False
    ) -> "Store":
        """Open the file or the server at `location`; with `create` make what is missing of it.

        With both, nothing is made, but a database without tables is no error either.
        """
        return cls(open_database(location, create=create, read_only=read_only))

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Runs

    def create_run(
        self,
        *,
        name: str,
        task: Task,
        config: Mapping[str, Any],
        seed: int,
        steps: Sequence[Ticket] = (),
    ) -> RunRow:
        """Add a run; its fitness is measured against `config["baseline"]` (default `eager`).

        With `steps` of another run (`judged_steps`) it has asked for these already, with their
        numbers, and holds the verdicts, as after a crash: its next process tells them first, in
        this order. They are no part of its budget.
        """
        described: dict[str, Any] = {"name": name, "task": task, "config": config, "seed": seed}
        return self._database.write_alone(warm_start.create, **described, steps=steps)

    def claim(self, run: int) -> None:
        """Become the one process that continues the run, which then counts as running.

        A lease whose heartbeat is older than 30 s, or whose process has died on this machine, is
        taken over.

        Raises:
            UsageError: another process is continuing it.
        """
        self._database.claim(run, self._owner)

    def heartbeat(self, run: int, active_s: float) -> None:
        """Keep the lease (call at least every 10 s), and add active seconds to the run's time.

        From the first one until `release`, every write first sees that nothing else has taken the
        file away or overwritten it.
        """
        self._database.write(runs.beat, run, self._owner, active_s)
        self._database.watch(self._owner)

    def release(self, run: int, state: str, reason: str) -> None:
        """End the claim. `state` is `finished` or `interrupted`, `reason` a phrase for people."""
        self._database.write(runs.leave, run, self._owner, state, reason)
        self._database.unwatch(run)

    def reconfigure(self, run: int, config: Mapping[str, Any]) -> None:
        """Describe a claimed run by another configuration from now on."""
        self._database.write(runs.reconfigure, run, self._owner, config)

    def record_audit(self, run: int, findings: Sequence[Mapping[str, str]]) -> None:
        """Keep the findings of the task's audit, in a run that was created without one."""
        self._database.write(runs.record_audit, run, self._owner, findings)

    def record_compiled(self, run: int, compiled: Sequence[Compiled]) -> None:
        """Keep the compiled reference of the task, in a run that began without."""
        self._database.write(runs.record_compiled, run, self._owner, compiled)

    # Tickets

    def ask(self, run: int, operator: str, parents: Sequence[str], *, method: str = "") -> Ticket:
        """Open the next ticket for an operator and the parents (digests) selected for it."""
        return self._database.write(tickets.ask, run, self._owner, operator, parents, method=method)

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
        asked = (run, self._owner, operator, parents, request)
        return self._database.write(tickets.request, *asked, model=model, method=method)

    def begin_call(self, ticket: Ticket, worst: Reservation) -> int:
        """Commit a call for a ticket's open request before it is sent; returns the call's id."""
        return self._database.write(tickets.begin_call, ticket, self._owner, worst)

    def end_call(self, call: int, reply: ModelReply) -> Ticket:
        """Store the result of a call, and charge it; a call that has ended keeps its outcome.

        The ticket is replied then, or still asked where the call was not accepted
        (`CallStatus.UNAVAILABLE`).
        """
        return self._database.write(tickets.end_call, call, self._owner, reply)

    def recompose(self, ticket: Ticket, parents: Sequence[str], request: ModelRequest) -> Ticket:
        """Ask a ticket's first request, which nothing has answered, in another text.

        The text before is kept, with the parents that it was about; `answer` still takes a reply
        to it.
        """
        return self._database.write(tickets.recompose, ticket, self._owner, parents, request)

    def answer(self, ticket: Ticket, reply: ModelReply, *, key: str = "") -> Ticket:
        """Store a reply obtained elsewhere: a call without a cost beyond the one it states.

        `key` is that of the text which it answers; of the one that stands if left out.
        """
        return self._database.write(tickets.answer, ticket, self._owner, reply, key)

    def propose(
        self,
        ticket: Ticket,
        outcome: Proposal | Failed | ModelRequest,
        reading: ReplyStatus | None = None,
    ) -> Ticket:
        """Record the operator's proposal, and its reading of a reply.

        A failure (a duplicate is one too) closes the ticket; a request opens its next round.
        """
        return self._database.write(tickets.propose, ticket, self._owner, outcome, reading)

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
        asked = (run, self._owner, operator, parents, outcome)
        return self._database.write(tickets.record, *asked, method=method, tuning=tuning)

    def withdraw_evaluation(self, ticket: Ticket) -> None:
        """Take back a `start_evaluation` that was given up for our own reasons (a drain)."""
        self._database.write(tickets.withdraw_evaluation, ticket, self._owner)

    def start_evaluation(self, ticket: Ticket) -> int:
        """Count an attempt before it is made; returns the attempts so far with this one."""
        return self._database.write(tickets.start_evaluation, ticket, self._owner)

    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket:
        """Record the verdict and count it; a ticket that has one already keeps that one."""
        return self._database.write(tickets.evaluated, ticket, self._owner, evaluation)

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
        self._database.write(tickets.tell, ticket, self._owner, elite, offer, credit)

    # Maintenance

    def backup(self, path: str | Path) -> None:
        """Copy the database to a new file, consistent also while a search is writing."""
        self._database.backup(Path(path))

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
        """Drop raw samples and feedback but of the `keep` best elites (None: all) and ancestors."""
        return self._database.prune(run, self._owner, keep)

    def copy_to(self, target: "Store") -> int:
        """Copy all runs into an empty database of any kind; returns the number of rows."""
        return copying.copy(self._database, target._database)

    @staticmethod
    def upgrade(location: str | Path) -> str:
        """Bring the schema at `location` up to date; returns what was done, as a phrase."""
        database = open_database(location, to_upgrade=True)
        try:
            before = database.upgrade()
        finally:
            database.close()
        if before == VERSION:
            return f"{database.location} has schema {VERSION}, the current one; nothing to do"
        return f"{database.location} had schema {before} and has {VERSION} now"
