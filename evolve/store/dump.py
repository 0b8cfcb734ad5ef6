"""A run as JSON lines: whole, or canonical for comparing replays."""

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from evolve.core.digest import canonical_json
from evolve.core.evaluation import Evaluation
from evolve.core.protocols import Elite, Offer
from evolve.core.records import Ticket
from evolve.core.run_store.steering import repeatable
from evolve.languages.registry import detect_language
from evolve.store.database.backend import Database
from evolve.store.database.schema import instance, ticket
from evolve.store.tables import archive, lineage, requests, runs, steering, stored_tickets

_PAGE = 200
_NOT_REPEATABLE = ("durations_s", "device_time_s", "samples", "environment")
_REPLY_NOT_REPEATABLE = ("latency_s", "attempts", "error")
_COUNTERS = (
    *("proposals", "tunings", "evaluations", "screens", "evaluations_at_best"),
    *("calls", "tokens", "usd"),
)

_first = lineage.first_ticket(instance.c.program)
_NEXT = (
    select(ticket, _first.label("first"))
    .outerjoin(instance, instance.c.id == ticket.c.instance)
    .where(ticket.c.run == bindparam("run"), ticket.c.sequence > bindparam("after"))
    .order_by(ticket.c.sequence)
    .limit(_PAGE)
)


def lines(database: Database, run_id: int, *, canonical: bool) -> Iterator[str]:
    """The run, its programs and tickets in order, how it was steered, and its counters."""
    yield canonical_json(database.read(_run, run_id, canonical))
    after = -1
    while page := database.read(_page, run_id, after, canonical):
        yield from map(canonical_json, page)
        after = page[-1]["sequence"]
    yield from map(canonical_json, database.read(_steering, run_id, canonical))
    yield canonical_json(database.read(_progress, run_id, canonical))


def _page(connection: Connection, run_id: int, after: int, canonical: bool) -> list[dict[str, Any]]:
    """The lines of the next tickets, of which the last is a ticket's."""
    rows = connection.execute(_NEXT, {"run": run_id, "after": after}).all()
    return [line for row in rows for line in _ticket_lines(connection, row, canonical)]


def _run(connection: Connection, run_id: int, canonical: bool) -> dict[str, Any]:
    row = runs.by_id(connection, run_id)
    line: dict[str, Any] = {"kind": "run", "seed": row.seed, "baseline": row.baseline}
    line["task"] = row.task.to_json()
    if canonical:
        for compiled in line["task"]["compiled"]:
            del compiled["device"]
    else:
        line |= {"name": row.name, "config": row.config, "created": row.created}
        line |= {"state": row.state, "reason": row.reason}
        line |= {"user": row.user, "host": row.host, "project": row.project}
    return line


def _ticket_lines(
    connection: Connection, row: Row[Any], canonical: bool
) -> Iterator[dict[str, Any]]:
    item = stored_tickets.load(connection, row)
    if item.proposal is not None and row.first == row.id:
        program = item.proposal.program
        yield {
            "kind": "program",
            "digest": program.digest,
            "language": detect_language(program.source).name,
            "source": program.source,
        }
    line = _ticket(item) | {"offer": _offer(archive.of_ticket(connection, item.id))}
    if item.method:
        line["method"] = item.method
    if item.model:
        line |= {"model": item.model, "rounds": _rounds(connection, item, canonical)}
    if item.evaluation is not None:
        line["evaluation"] = _evaluation(item.evaluation, canonical)
    if not canonical:
        line |= {"attempts": item.attempts, "elapsed_s": row.elapsed_s}
    yield line


def _ticket(item: Ticket) -> dict[str, Any]:
    line: dict[str, Any] = {
        "kind": "ticket",
        "sequence": item.sequence,
        "operator": item.operator,
        "state": item.state,
        "selected": item.parents,
        "failure": item.failure,
    }
    if item.proposal is not None:
        line |= {
            "program": item.proposal.program.digest,
            "assignment": dict(item.proposal.assignment),
            "fidelity": item.proposal.fidelity,
            "parents": item.proposal.parents,
            "note": item.proposal.note,
        }
        if item.proposal.is_reevaluation:
            line["again"] = True
    if item.tuning:
        line["tuning"] = True
    return line


def _rounds(connection: Connection, item: Ticket, canonical: bool) -> list[dict[str, Any]]:
    """A ticket's requests to models, and their replies."""
    exchanges = iter(item.exchanges)
    lines = []
    for row in requests.texts_of(connection, item.id):
        if row.replaced is not None:
            lines += [] if canonical else [_replaced(connection, row)]
            continue
        exchange = next(exchanges, None)
        request = exchange.request if exchange else requests.load(connection, row)
        line = {name: getattr(row, name) for name in ("purpose", "key", "sample", "reading")}
        line |= {"model": request.model, "memo": dict(request.memo)}
        if exchange is not None:
            line["reply"] = exchange.reply.to_json()
            for name in _REPLY_NOT_REPEATABLE if canonical else ():
                del line["reply"][name]
        if not canonical:
            line["messages"] = [[message.role, message.content] for message in request.messages]
        lines.append(line)
    return lines


def _replaced(connection: Connection, row: Row[Any]) -> dict[str, Any]:
    """A text of a round that another one stands for, with the parents that it was about."""
    messages = requests.load(connection, row).messages
    return {
        "replaced": json.loads(row.replaced),
        "key": row.key,
        "messages": [[message.role, message.content] for message in messages],
    }


def _evaluation(item: Evaluation, canonical: bool) -> dict[str, Any]:
    data = item.to_json()
    if canonical:
        for name in _NOT_REPEATABLE:
            del data[name]
        for case in data["cases"]:
            del case["times_ms"]
    return data


def _offer(told: tuple[Elite, Offer] | None) -> dict[str, Any] | None:
    if told is None:
        return None
    elite, offer = told
    return {
        "program": elite.program,
        "assignment": dict(elite.assignment),
        "fitness": elite.fitness.to_json(),
        "evaluations": elite.evaluations,
        "descriptors": dict(elite.descriptors),
        "sequence": elite.sequence,
        "status": offer.status.name.lower(),
        "slot": offer.slot,
        "evicted": offer.evicted,
        "moves": dict(offer.moves),
    }


def _steering(connection: Connection, run_id: int, canonical: bool) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    events = steering.events(connection, run_id)
    for event in repeatable(events) if canonical else events:
        line: dict[str, Any] = {"kind": "steering", "change": event.kind.value}
        line |= {"value": event.value, "sequence": event.sequence}
        lines.append(line if canonical else line | {"time": event.time, "user": event.user})
    return lines


def _progress(connection: Connection, run_id: int, canonical: bool) -> dict[str, Any]:
    progress = runs.progress(connection, run_id)
    line: dict[str, Any] = {"kind": "progress"}
    line |= {name: getattr(progress, name) for name in _COUNTERS}
    line["best"] = None if progress.best is None else progress.best.to_json()
    if not canonical:
        line |= {"device_time_s": progress.device_time_s, "wall_time_s": progress.wall_time_s}
    return line
