"""Calls of models: committed with their reservation, settled with the reply, and the sums of both.

What a call is charged: what the endpoint counted; nothing if it was not accepted; its
reservation where the outcome, or the count, never arrived.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    insert,
    literal_column,
    select,
    update,
)

from evolve.core.digest import canonical_json
from evolve.core.model import (
    BY_HAND,
    CallStatus,
    Exchange,
    ModelReply,
    Reservation,
    TokenTrace,
    Usage,
)
from evolve.store.database import blobs
from evolve.store.database.schema import call, request
from evolve.store.tables import requests, runs

UNBILLED = (CallStatus.FAILED, CallStatus.UNAVAILABLE)

_is_named = and_(request.c.model == literal_column(f"'{BY_HAND}'"), call.c.model != "")
ANSWERED_BY = case((_is_named, call.c.model), else_=request.c.model)
"""The model that was asked; of a request by hand the one that its reply names."""

_BEGIN = insert(call).returning(call.c.id)
_CALL = (
    select(call, request.c.run, request.c.ticket)
    .join(request, request.c.id == call.c.request)
    .where(call.c.id == bindparam("call"))
)
_SETTLED = (
    *("status", "tokens", "usd", "model", "finish_reason", "error", "usage", "cost_usd"),
    *("latency_s", "attempts", "reply", "reasoning", "trace"),
)
_END = (
    update(call)
    .where(call.c.id == bindparam("ended"))
    .values({name: bindparam(name) for name in _SETTLED})
)
_OF_REQUEST = (
    select(call)
    .where(
        call.c.request == bindparam("request"),
        call.c.status.not_in((CallStatus.PENDING.value, CallStatus.UNAVAILABLE.value)),
    )
    .order_by(call.c.id.desc())
    .limit(1)
)
_PENDING = (
    select(call.c.id)
    .join(request, request.c.id == call.c.request)
    .where(call.c.status == CallStatus.PENDING.value, request.c.run == bindparam("run"))
    .order_by(call.c.id)
)
_ANSWERED = (
    select(request)
    .join(call, call.c.request == request.c.id)
    .where(
        request.c.run == bindparam("run"),
        request.c.operator == bindparam("operator"),
        request.c.purpose == bindparam("purpose"),
        call.c.status == CallStatus.COMPLETED.value,
    )
    .order_by(request.c.id.desc())
    .limit(bindparam("limit"))
)
_RECORDED = (
    select(request.c.id)
    .where(
        request.c.run == bindparam("run"),
        request.c.key == bindparam("key"),
        request.c.sample == bindparam("sample"),
    )
    .limit(1)
)


def begin(connection: Connection, run_id: int, request_id: int, worst: Reservation) -> int:
    """Commit a call before it is sent; returns its id."""
    row = {
        "request": request_id,
        "status": CallStatus.PENDING.value,
        "tokens_reserved": worst.tokens,
        "usd_reserved": worst.usd,
        "started_s": runs.row_of(connection, run_id).active_s,
    }
    identity: int = connection.execute(_BEGIN, row).scalar_one()
    runs.reserve(connection, run_id, worst)
    return identity


def end(connection: Connection, call_id: int, reply: ModelReply) -> bool:
    """Settle a call with its reply; False if it has ended before, which changes nothing."""
    row = connection.execute(_CALL, {"call": call_id}).one()
    if row.status != CallStatus.PENDING:
        return False
    worst = Reservation(tokens=row.tokens_reserved, usd=row.usd_reserved)
    tokens, usd = charge(reply, worst)
    settled = {
        "ended": call_id,
        "status": reply.status.value,
        "tokens": tokens,
        "usd": usd,
        "model": _storable(reply.model),
        "finish_reason": _storable(reply.finish_reason),
        "error": _storable(reply.error),
        "usage": None if reply.usage is None else canonical_json(asdict(reply.usage)),
        "cost_usd": reply.cost_usd,
        "latency_s": reply.latency_s,
        "attempts": reply.attempts,
    }
    texts = {
        "reply": _storable(reply.text),
        "reasoning": _storable(reply.reasoning),
        "trace": "" if reply.trace is None else canonical_json(asdict(reply.trace)),
    }
    stored = blobs.put_all(connection, filter(None, texts.values()))
    settled |= {name: stored.get(text) for name, text in texts.items()}
    connection.execute(_END, settled)
    refused = reply.status is CallStatus.UNAVAILABLE
    runs.settle(connection, row.run, worst, tokens, usd, refused=refused)
    return True


def charge(reply: ModelReply, worst: Reservation) -> tuple[int, float | None]:
    """Tokens and USD that a call counts for; USD is None if the cost is unknown."""
    if reply.status in UNBILLED:
        return 0, 0.0
    tokens = worst.tokens if reply.usage is None else reply.usage.total
    return tokens, worst.usd if reply.cost_usd is None else reply.cost_usd


def pending(connection: Connection, run_id: int) -> list[int]:
    """Calls of a run whose outcome is not known."""
    return list(connection.execute(_PENDING, {"run": run_id}).scalars())


def ticket_of(connection: Connection, call_id: int) -> int:
    """The ticket that a call belongs to."""
    ticket: int = connection.execute(_CALL, {"call": call_id}).one().ticket
    return ticket


def reply_of(connection: Connection, request_id: int) -> ModelReply | None:
    """The reply to a request; None if it has none (yet)."""
    row = connection.execute(_OF_REQUEST, {"request": request_id}).one_or_none()
    return None if row is None else _reply(connection, row)


def exchanges(
    connection: Connection, run_id: int, operator: str, purpose: str, limit: int
) -> list[Exchange]:
    """The newest completed calls of an operator for a purpose, newest first."""
    key = {"run": run_id, "operator": operator, "purpose": purpose, "limit": limit}
    return [
        Exchange(requests.load(connection, row), reply)
        for row in connection.execute(_ANSWERED, key).all()
        if (reply := reply_of(connection, row.id))
    ]


def recorded(connection: Connection, run_id: int, key: str, sample: int) -> ModelReply | None:
    """A run's reply to a request by its key and sample number."""
    where = {"run": run_id, "key": key, "sample": sample}
    found: int | None = connection.execute(_RECORDED, where).scalar()
    return None if found is None else reply_of(connection, found)


def _reply(connection: Connection, row: Row[Any]) -> ModelReply:
    return of_row(row, lambda identity: blobs.get_unless_none(connection, identity))


def of_row(row: Row[Any], text: Callable[[int | None], str]) -> ModelReply:
    """A row as a reply; `text` gives its blobs by id, and the empty text for None."""
    trace = json.loads(text(row.trace) or "null")
    return ModelReply(
        status=CallStatus(row.status),
        text=text(row.reply),
        reasoning=text(row.reasoning),
        finish_reason=row.finish_reason,
        usage=None if row.usage is None else Usage(**json.loads(row.usage)),
        cost_usd=row.cost_usd,
        latency_s=row.latency_s,
        attempts=row.attempts,
        model=row.model,
        error=row.error,
        trace=trace and TokenTrace(**{name: tuple(trace[name]) for name in trace}),
    )


def _storable(text: str) -> str:
    """The text with lone surrogates, which JSON can carry and UTF-8 cannot, as question marks."""
    return text.encode("utf-8", "replace").decode()
