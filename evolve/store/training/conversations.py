"""Requests to models and their replies, of many tickets at a time."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from evolve.core.model import (
    BY_HAND,
    CallStatus,
    Exchange,
    Message,
    ModelReply,
    ReplyStatus,
)
from evolve.store.database.schema import call, request, request_message
from evolve.store.tables import calls, requests
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
    """A ticket's requests to models.

    Attributes:
        key: of the first request (`ModelRequest.key`).
        model: the one asked last; of a request by hand the one that its reply names.
        models: all of them.
        reading: the operator's reading of the last reply; None if none was read.
        exchanges: the answered rounds; empty if texts were left out.
    """

    key: str
    model: str
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
        names = _names(connection, (row for rows in rounds.values() for row in rows))
        return {
            ticket: Asked(
                key=rows[0].key,
                model=names[rows[-1].id],
                models=frozenset(names[row.id] for row in rows),
                reading=None if rows[-1].reading is None else ReplyStatus(rows[-1].reading),
                exchanges=tuple(
                    Exchange(requests.of_row(row, exchanges[row.id][0]), exchanges[row.id][1])
                    for row in rows
                    if row.id in exchanges
                ),
            )
            for ticket, rows in rounds.items()
        }

    def _exchanges(
        self, connection: Connection, asked: Sequence[int]
    ) -> Mapping[int, tuple[tuple[Message, ...], ModelReply]]:
        """Messages and reply of every request that has one."""
        ended = {
            row.request: row for row in _all(connection, _CALLS, asked) if row.status in _ENDED
        }
        rows = _all(connection, _MESSAGES, ended)
        needed = [row.content for row in rows]
        needed += [one for row in ended.values() for one in (row.reply, row.reasoning, row.trace)]
        texts = self._texts.turn(connection, needed)
        messages: dict[int, tuple[Message, ...]] = dict.fromkeys(ended, ())
        for row in rows:
            messages[row.request] += (Message(row.role, texts[row.content]),)
        said = lambda one: "" if one is None else texts.get(one, "")  # noqa: E731
        return {
            identity: (messages[identity], calls.of_row(row, said))
            for identity, row in ended.items()
        }


def _names(connection: Connection, asked: Iterable[Row[Any]]) -> dict[int, str]:
    """The model of each request."""
    found = {row.id: row.model for row in asked}
    by_hand = [identity for identity, name in found.items() if name == BY_HAND]
    answers = _all(connection, _CALLS, by_hand)
    return found | {row.request: row.model for row in answers if row.model}


def _all(connection: Connection, query: Any, ids: Collection[int]) -> list[Row[Any]]:
    return [
        row for part in bulk.in_parts(ids) for row in connection.execute(query, {"ids": part}).all()
    ]
