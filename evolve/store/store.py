"""The database of searches: every fact is a row before anything is done with it."""

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evolve.core.compiled import Compiled
from evolve.core.evaluation import Evaluation
from evolve.core.model import ModelReply, ModelRequest, ReplyStatus, Reservation
from evolve.core.protocols import Elite, Failed, Offer, Proposal
from evolve.core.records import Credit, Pruned, Quota, RunRow, Ticket
from evolve.core.run_store import RunWrites, TicketWrites, Upkeep
from evolve.core.run_store.steering import SteeringEvent, SteeringKind
from evolve.core.task import Task
from evolve.store import copying
from evolve.store.database import schema
from evolve.store.database.backend import Action, Database, P, T
from evolve.store.opening import exists, open_database
from evolve.store.queries import Queries
from evolve.store.tables import audit_log, programs, quotas, runs, steering, tickets, warm_start


class Store(Queries, RunWrites, TicketWrites, Upkeep):
    """A `RunStore` on SQLite or PostgreSQL.

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

    @staticmethod
    def exists(location: str | Path) -> bool:
        """Whether a database has been made at `location`."""
        return exists(location)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """What was read of a run before is not kept."""
        try:
            yield
        finally:
            self._writes += 1
            self._answers.clear()

    def _write(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._changing():
            return self._database.write(action, *args, **kwargs)

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
        described: dict[str, Any] = {"name": name, "task": task, "config": config, "seed": seed}
        return self._database.write_alone(warm_start.create, **described, steps=steps)

    def claim(self, run: int) -> None:
        with self._changing():
            self._database.claim(run, self._owner)
        self._held[run] = threading.get_ident()

    def heartbeat(self, run: int, active_s: float) -> None:
        self._write(runs.beat, run, self._owner, active_s)
        self._database.watch(self._owner)

    def release(self, run: int, state: str, reason: str) -> None:
        self._write(runs.leave, run, self._owner, state, reason)
        self._database.unwatch(run)
        self._held.pop(run, None)

    def reconfigure(self, run: int, config: Mapping[str, Any]) -> None:
        self._write(runs.reconfigure, run, self._owner, config)

    def steer(
        self, run: int, kind: SteeringKind, value: str = "", *, due: int = 0, via: str = ""
    ) -> SteeringEvent:
        return self._write(steering.add, run, kind, value, due, via)

    def take_steering(
        self,
        run: int,
        event: SteeringEvent,
        sequence: int,
        config: Mapping[str, Any] | None = None,
        outcome: Proposal | Failed | None = None,
    ) -> Ticket | None:
        programs.parse_ahead(outcome)
        taken = (run, self._owner, event, sequence, config, outcome)
        return self._write(steering.take, *taken)

    def record_audit(self, run: int, findings: Sequence[Mapping[str, str]]) -> None:
        self._write(runs.record_audit, run, self._owner, findings)

    def record_reference(self, run: int, cost: Mapping[str, Any]) -> None:
        self._write(runs.record_reference, run, self._owner, cost)

    def record_compiled(self, run: int, compiled: Sequence[Compiled]) -> None:
        self._write(runs.record_compiled, run, self._owner, compiled)

    # Tickets

    def ask(self, run: int, operator: str, parents: Sequence[str], *, method: str = "") -> Ticket:
        return self._write(tickets.ask, run, self._owner, operator, parents, method=method)

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
        asked = (run, self._owner, operator, parents, request)
        return self._write(tickets.request, *asked, model=model, method=method)

    def begin_call(self, ticket: Ticket, worst: Reservation) -> int:
        return self._write(tickets.begin_call, ticket, self._owner, worst)

    def end_call(self, call: int, reply: ModelReply) -> Ticket:
        return self._write(tickets.end_call, call, self._owner, reply)

    def recompose(self, ticket: Ticket, parents: Sequence[str], request: ModelRequest) -> Ticket:
        return self._write(tickets.recompose, ticket, self._owner, parents, request)

    def answer(self, ticket: Ticket, reply: ModelReply, *, key: str = "") -> Ticket:
        return self._write(tickets.answer, ticket, self._owner, reply, key)

    def propose(
        self,
        ticket: Ticket,
        outcome: Proposal | Failed | ModelRequest,
        reading: ReplyStatus | None = None,
    ) -> Ticket:
        programs.parse_ahead(outcome)
        return self._write(tickets.propose, ticket, self._owner, outcome, reading)

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
        programs.parse_ahead(outcome)
        asked = (run, self._owner, operator, parents, outcome)
        return self._write(tickets.record, *asked, method=method, tuning=tuning)

    def withdraw_evaluation(self, ticket: Ticket) -> None:
        self._write(tickets.withdraw_evaluation, ticket, self._owner)

    def start_evaluation(self, ticket: Ticket) -> int:
        return self._write(tickets.start_evaluation, ticket, self._owner)

    def evaluated(self, ticket: Ticket, evaluation: Evaluation) -> Ticket:
        return self._write(tickets.evaluated, ticket, self._owner, evaluation)

    def tell(
        self,
        ticket: Ticket,
        elite: Elite | None,
        offer: Offer | None,
        credit: Credit | None = None,
    ) -> None:
        self._write(tickets.tell, ticket, self._owner, elite, offer, credit)

    # Teams

    def set_quota(self, quota: Quota) -> None:
        self._write(quotas.put, quota)

    def charge(self, project: str, device_time_s: float) -> None:
        self._write(quotas.add_charge, project, device_time_s)

    def log(self, action: str, run: str = "", detail: str = "") -> None:
        self._write(audit_log.add, action, run, detail)

    # Maintenance

    def backup(self, path: str | Path) -> None:
        self._database.backup(Path(path))

    def prune(self, run: int, *, keep: int | None = None) -> Pruned:
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
        if before == schema.VERSION:
            return f"{database.location} has schema {before}, the current one; nothing to do"
        return f"{database.location} had schema {before} and has {schema.VERSION} now"
