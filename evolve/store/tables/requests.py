"""Requests of tickets to models: one per round, each with its messages."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, union_all, update

from evolve.core.digest import canonical_json
from evolve.core.model import Message, ModelRequest, ReplyStatus, Sampling
from evolve.core.records import TicketState
from evolve.store.database import blobs
from evolve.store.database.schema import (
    blob,
    is_open,
    request,
    request_message,
    run,
    run_operator,
    ticket,
)

_PUT = insert(request).returning(request.c.id)
_PUT_MESSAGES = insert(request_message)
_SAMPLES = select(func.count()).where(
    request.c.run == bindparam("run"), request.c.key == bindparam("key")
)
_TEXTS = (
    select(request)
    .where(request.c.ticket == bindparam("ticket"))
    .order_by(request.c.round, request.c.revision)
)
_OF_TICKET = _TEXTS.where(request.c.replaced.is_(None))
_judged = run.c.evaluations + run.c.screens
_JUDGED = select(_judged).where(run.c.id == bindparam("run"))
_OVERTAKEN = (
    select(request.c.judged < _judged)
    .join(run, run.c.id == request.c.run)
    .where(request.c.id == bindparam("of"))
)
_MESSAGES = (
    select(request_message.c.role, blob.c.codec, blob.c.bytes)
    .join(blob, blob.c.id == request_message.c.content)
    .where(request_message.c.request == bindparam("request"))
    .order_by(request_message.c.position)
)
_NEWEST = (
    select(request)
    .where(
        request.c.run == bindparam("run"),
        request.c.operator == bindparam("operator"),
        request.c.purpose == bindparam("purpose"),
    )
    .order_by(request.c.id.desc())
    .limit(bindparam("limit"))
)
_PROPOSALS = union_all(
    select(run_operator.c.operator, run_operator.c.proposals.label("count")).where(
        run_operator.c.run == bindparam("run")
    ),
    select(ticket.c.operator, func.count().label("count"))
    .where(
        ticket.c.run == bindparam("run"),
        ticket.c.state.in_((TicketState.ASKED.value, TicketState.REPLIED.value)),
        ticket.c.model != "",
        is_open,  # these are few
    )
    .group_by(ticket.c.operator),
)
_THIS = update(request).where(request.c.id == bindparam("of"))
_READ = _THIS.values(reading=bindparam("status"))
_REPLACED = _THIS.values(replaced=bindparam("parents"))


def put(
    connection: Connection,
    run_id: int,
    ticket: int,
    operator: str,
    number: int,
    item: ModelRequest,
    *,
    revision: int = 0,
) -> int:
    """Store the request of a ticket's round `number`; returns which sample of its key it is."""
    key = {"run": run_id, "key": item.key}
    sample: int = connection.execute(_SAMPLES, key).scalar_one()
    row = key | {
        "ticket": ticket,
        "round": number,
        "revision": revision,
        "judged": connection.execute(_JUDGED, {"run": run_id}).scalar_one(),
        "operator": operator,
        "purpose": item.purpose,
        "sample": sample,
        "model": item.model or "",
        "parameters": canonical_json(asdict(item.sampling) | {"max_tokens": item.max_tokens}),
        "memo": canonical_json(dict(item.memo)),
    }
    identity: int = connection.execute(_PUT, row).scalar_one()
    contents = blobs.put_all(connection, [message.content for message in item.messages])
    messages = [
        {
            "request": identity,
            "position": position,
            "role": message.role,
            "content": contents[message.content],
        }
        for position, message in enumerate(item.messages)
    ]
    if messages:
        connection.execute(_PUT_MESSAGES, messages)
    return sample


def rows_of(connection: Connection, ticket: int) -> Sequence[Row[Any]]:
    """The rows of a ticket's rounds, in order: of each the text that stands."""
    return connection.execute(_OF_TICKET, {"ticket": ticket}).all()


def texts_of(connection: Connection, ticket: int) -> Sequence[Row[Any]]:
    """All texts of a ticket's rounds, those that others stand for too, in order."""
    return connection.execute(_TEXTS, {"ticket": ticket}).all()


def of_round(connection: Connection, ticket: int, number: int) -> list[ModelRequest]:
    """All texts in which a round of a ticket was asked, in order."""
    rows = texts_of(connection, ticket)
    return [load(connection, row) for row in rows if row.round == number]


def is_overtaken(connection: Connection, ticket: int) -> bool:
    """Whether the run has had verdicts since the newest request of a ticket was composed."""
    newest_request = rows_of(connection, ticket)[-1].id
    return bool(connection.execute(_OVERTAKEN, {"of": newest_request}).scalar_one())


def replace(connection: Connection, request_id: int, parents: Sequence[str]) -> None:
    """Note that another text of its round stands for this one, which was about these parents."""
    connection.execute(_REPLACED, {"of": request_id, "parents": canonical_json(list(parents))})


def restore(connection: Connection, row: Row[Any]) -> list[str]:
    """Let a replaced text stand again; returns the parents (digests) that it was about."""
    connection.execute(_REPLACED, {"of": row.id, "parents": None})
    return list(json.loads(row.replaced))


def newest(
    connection: Connection, run_id: int, operator: str, purpose: str, limit: int
) -> list[ModelRequest]:
    """An operator's newest requests for a purpose, newest first."""
    key = {"run": run_id, "operator": operator, "purpose": purpose, "limit": limit}
    return [load(connection, row) for row in connection.execute(_NEWEST, key).all()]


def proposals(connection: Connection, run_id: int) -> Counter[str]:
    """How many proposals of each operator were counted, or a model is still to give."""
    found = Counter[str]()
    for operator, count in connection.execute(_PROPOSALS, {"run": run_id}):
        found[operator] += count
    return found


def load(connection: Connection, row: Row[Any]) -> ModelRequest:
    """The request of a row, with its messages."""
    messages = connection.execute(_MESSAGES, {"request": row.id})
    return of_row(row, (Message(role, blobs.decode(*text)) for role, *text in messages))


def of_row(row: Row[Any], messages: Iterable[Message]) -> ModelRequest:
    """A row as a request of these messages."""
    parameters = json.loads(row.parameters)
    max_tokens = parameters.pop("max_tokens")
    parameters["stop"] = tuple(parameters["stop"])
    return ModelRequest(
        messages=tuple(messages),
        model=row.model or None,
        sampling=Sampling(**parameters),
        max_tokens=max_tokens,
        purpose=row.purpose,
        memo=json.loads(row.memo),
    )


def set_reading(connection: Connection, request_id: int, status: ReplyStatus) -> None:
    """Record the operator's reading of the reply."""
    connection.execute(_READ, {"of": request_id, "status": status.value})
