"""Steering of runs. Rows are added; triggers refuse everything else."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select

from evolve.core.lineage import INJECTED
from evolve.core.protocols import Failed, Proposal
from evolve.core.records import Ticket
from evolve.core.run_store.steering import SteeringEvent, SteeringKind
from evolve.store.database import blobs, lease
from evolve.store.database.schema import blob, steering, steering_taken
from evolve.store.database.user import current_user
from evolve.store.tables import audit_log, runs, tickets

MAX_DETAIL = 200  # characters of an event in the audit log
_OF_RUN = steering.c.run == bindparam("run")
_EVENTS = (
    select(steering, steering_taken.c.sequence, blob.c.codec, blob.c.bytes)
    .join(blob, blob.c.id == steering.c.value)
    .outerjoin(steering_taken, steering_taken.c.steering == steering.c.id)
    .where(_OF_RUN)
    .order_by(steering.c.id)
)
_DUE = _EVENTS.where(steering_taken.c.sequence.is_(None), steering.c.due <= bindparam("step"))
_COUNTS = (
    select(func.count(steering.c.id), func.count(steering_taken.c.steering))
    .select_from(steering)
    .outerjoin(steering_taken, steering_taken.c.steering == steering.c.id)
    .where(_OF_RUN)
)


def add(
    connection: Connection, run_id: int, kind: SteeringKind, value: str, due: int, via: str
) -> SteeringEvent:
    """An event of this process's user, now, and its entry of the audit log."""
    by_way = f" via {via}" if via else ""
    row: Mapping[str, Any] = {
        "run": run_id,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "user": f"{current_user()}{by_way}",
        "kind": kind.value,
        "due": due,
    }
    stored = {**row, "value": blobs.put(connection, value)}
    number = connection.execute(insert(steering).returning(steering.c.id), stored).scalar_one()
    event = SteeringEvent(
        id=number, kind=kind, value=value, time=row["time"], user=row["user"], due=due
    )
    name = runs.row_of(connection, run_id).name
    audit_log.add(connection, "steered", name, f"{event.text[:MAX_DETAIL]}{by_way}")
    return event


def take(
    connection: Connection,
    run_id: int,
    owner: str,
    event: SteeringEvent,
    sequence: int,
    config: Mapping[str, Any] | None,
    outcome: Proposal | Failed | None,
) -> Ticket | None:
    """The search takes an event; all that follows from it comes in the same moment."""
    lease.fence_run(connection, run_id, owner)
    ticket = None
    if outcome is not None:
        how: Mapping[str, Any] = {"method": "", "tuning": False}
        ticket = tickets.record(connection, run_id, owner, INJECTED, (), outcome, **how)
    row = {"steering": event.id, "sequence": sequence}
    connection.execute(insert(steering_taken), row)
    if config is not None:
        runs.reconfigure(connection, run_id, owner, config)
    return ticket


def events(connection: Connection, run_id: int, due: int | None = None) -> list[SteeringEvent]:
    """All events of a run in order; with `due` those that its step of this number is to take."""
    given: dict[str, Any] = {"run": run_id}
    query = _EVENTS
    if due is not None:
        query, given = _DUE, given | {"step": due}
    return [
        SteeringEvent(
            id=row.id,
            kind=SteeringKind(row.kind),
            value=blobs.decode(row.codec, row.bytes),
            time=row.time,
            user=row.user,
            due=row.due,
            sequence=row.sequence,
        )
        for row in connection.execute(query, given)
    ]


def counts(connection: Connection, run_id: int) -> tuple[int, int]:
    """How many events a run has, and how many of them its search has taken."""
    added, taken = connection.execute(_COUNTS, {"run": run_id}).one()
    return added, taken
