"""What models were asked and answered, of many tickets at a time."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from evolve.core.model import (
    CallStatus,
    Exchange,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Sampling,
    TokenTrace,
    Usage,
)
from evolve.store.database.schema import call, request, request_message
from evolve.store.training import bulk

_REQUESTS = (
    select(request)
    .where(request.c.ticket.in_(bindparam("ids", expanding=True)), request.c.replaced.is_(None))
    .order_by(request.c.ticket, request.c.round)
)
_MESSAGES = (
    select(request_message)
    .where(request_message.c.request.in_(bindparam("ids", expanding=True)))
    .order_by(request_message.c.request, request_message.c.position)
)
_CALLS = (
    select(call).where(call.c.request.in_(bindparam("ids", expanding=True))).order_by(call.c.id)
)
_ENDED = frozenset(
    status.value
    for status in CallStatus
    if status not in (CallStatus.PENDING, CallStatus.UNAVAILABLE)
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a ticket asked of models.

    Attributes:
        key: of the first request (`ModelRequest.key`).
        models: all that were asked.
        reading: what the operator made of the last reply; None where nobody read one.
        exchanges: the answered rounds; empty where texts were left out.
    """

    key: str
    models: frozenset[str]
    reading: ReplyStatus | None
    exchanges: tuple[Exchange, ...]


class Conversations:
    """Reads them page by page; prompts share most of their messages with their neighbours."""

    def __init__(self) -> None:
        self._texts = bulk.Recent(bulk.texts)

    def of(
        self, connection: Connection, tickets: Collection[int], with_texts: Collection[int]
    ) -> dict[int, Asked]:
        """By ticket; those that asked nothing are left out."""
        rounds: dict[int, list[Row[Any]]] = {}
        for row in _all(connection, _REQUESTS, tickets):
            rounds.setdefault(row.ticket, []).append(row)
        whole = [row.id for ticket in with_texts for row in rounds.get(ticket, ())]
        exchanges = self._exchanges(connection, whole)
        return {
            ticket: Asked(
                key=rows[0].key,
                models=frozenset(row.model for row in rows),
                reading=None if rows[-1].reading is None else ReplyStatus(rows[-1].reading),
                exchanges=tuple(
                    Exchange(_request(row, *exchanges[row.id][:1]), exchanges[row.id][1])
                    for row in rows
                    if row.id in exchanges
                ),
            )
            for ticket, rows in rounds.items()
        }

    def _exchanges(
        self, connection: Connection, requests: Sequence[int]
    ) -> Mapping[int, tuple[tuple[Message, ...], ModelReply]]:
        """Messages and reply of every request that has one."""
        calls = {
            row.request: row for row in _all(connection, _CALLS, requests) if row.status in _ENDED
        }
        rows = _all(connection, _MESSAGES, calls)
        needed = [row.content for row in rows]
        needed += [one for row in calls.values() for one in (row.reply, row.reasoning, row.trace)]
        texts = self._texts.turn(connection, needed)
        messages: dict[int, tuple[Message, ...]] = dict.fromkeys(calls, ())
        for row in rows:
            messages[row.request] += (Message(row.role, texts[row.content]),)
        return {
            identity: (messages[identity], _reply(row, texts)) for identity, row in calls.items()
        }


def _all(connection: Connection, query: Any, ids: Collection[int]) -> list[Row[Any]]:
    return [
        row for part in bulk.in_parts(ids) for row in connection.execute(query, {"ids": part}).all()
    ]


def _request(row: Row[Any], messages: tuple[Message, ...]) -> ModelRequest:
    parameters = json.loads(row.parameters)
    max_tokens = parameters.pop("max_tokens")
    parameters["stop"] = tuple(parameters["stop"])
    return ModelRequest(
        messages=messages,
        model=row.model or None,
        sampling=Sampling(**parameters),
        max_tokens=max_tokens,
        purpose=row.purpose,
        memo=json.loads(row.memo),
    )


def _reply(row: Row[Any], texts: Mapping[int, str]) -> ModelReply:
    trace = json.loads(texts[row.trace]) if row.trace is not None else None
    return ModelReply(
        status=CallStatus(row.status),
        text=texts.get(row.reply, ""),
        reasoning=texts.get(row.reasoning, ""),
        finish_reason=row.finish_reason,
        usage=None if row.usage is None else Usage(**json.loads(row.usage)),
        cost_usd=row.cost_usd,
        latency_s=row.latency_s,
        attempts=row.attempts,
        model=row.model,
        error=row.error,
        trace=trace and TokenTrace(**{name: tuple(trace[name]) for name in trace}),
    )
