"""Steps of a run, read page by page, and the ancestry of a program by a recursive query."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    Row,
    ScalarSelect,
    Select,
    bindparam,
    func,
    select,
)

from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status, label_name, stages_s
from evolve.core.lineage import Step
from evolve.core.model import CallStatus
from evolve.core.protocols import AddStatus
from evolve.store.database import blobs
from evolve.store.database.backend import Database
from evolve.store.database.schema import (
    archive_offer,
    call,
    evaluation,
    instance,
    program,
    request,
    ticket,
    ticket_parent,
)
from evolve.store.tables import evaluations, programs
from evolve.store.tables.runs import row_of

_PAGE = 500

_evicted = program.alias("evicted")
_STEPS = (
    select(
        ticket,
        program.c.digest,
        instance.c.assignment,
        evaluation.c.id.label("evaluation"),
        evaluation.c.status,
        evaluation.c.custom,
        evaluation.c.labels,
        evaluation.c.device_time_s,
        evaluation.c.durations_s,
        evaluation.c.environment,
        archive_offer.c.status.label("offer"),
        archive_offer.c.slot,
        _evicted.c.digest.label("evicted"),
    )
    .outerjoin(instance, instance.c.id == ticket.c.instance)
    .outerjoin(program, program.c.id == instance.c.program)
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(archive_offer, archive_offer.c.ticket == ticket.c.id)
    .outerjoin(_evicted, _evicted.c.id == archive_offer.c.evicted)
    .where(ticket.c.run == bindparam("run"))
    .order_by(ticket.c.sequence)
)
_NEXT = _STEPS.where(ticket.c.sequence > bindparam("after")).limit(_PAGE)
_ONE = _STEPS.where(ticket.c.sequence == bindparam("sequence"))
_PARENTS = (
    select(ticket_parent.c.ticket, ticket_parent.c.role, program.c.digest)
    .join(program, program.c.id == ticket_parent.c.program)
    .where(ticket_parent.c.ticket.in_(bindparam("tickets", expanding=True)))
    .order_by(ticket_parent.c.ticket, ticket_parent.c.position)
)
_CHARGES = (
    select(
        request.c.ticket,
        func.sum(call.c.usd).label("usd"),
        func.count(call.c.id)
        .filter(call.c.tokens.is_not(None), call.c.usd.is_(None))
        .label("unknown"),
    )
    .join(call, call.c.request == request.c.id)
    .where(request.c.ticket.in_(bindparam("tickets", expanding=True)))
    .where(call.c.status != CallStatus.UNAVAILABLE.value)
    .group_by(request.c.ticket)
)


def ancestry(programs_of_interest: Select[Any]) -> CTE:
    """Programs (column `program`) that some programs of a run descend from, with themselves.

    The statement takes the run as parameter `run`. A program's parents are those of the step that
    produced it first.
    """
    line = programs_of_interest.cte("line", recursive=True)
    parents = (
        select(ticket_parent.c.program)
        .select_from(line)
        .join(ticket_parent, ticket_parent.c.ticket == first_ticket(line.c.program))
        .where(ticket_parent.c.role == "used")
    )
    return line.union(parents)


def first_ticket(program_id: ColumnElement[int]) -> ScalarSelect[int]:
    """The ticket of a run (parameter `run`) that produced a program first; NULL if none did."""
    producer = ticket.alias("producer")
    product = instance.alias("product")
    return (
        select(func.min(producer.c.id))
        .join(product, product.c.id == producer.c.instance)
        .where(producer.c.run == bindparam("run"), product.c.program == program_id)
        .correlate_except(producer, product)
        .scalar_subquery()
    )


_line = ancestry(select(program.c.id.label("program")).where(program.c.digest == bindparam("of")))
_makers = select(first_ticket(_line.c.program)).select_from(_line)
_ANCESTORS = _STEPS.where(ticket.c.id.in_(_makers))


def steps(database: Database, run_id: int, after: int) -> Iterator[Step]:
    """The tickets of the run after a number, in sequence order, those under way included."""
    while True:
        page = database.read(_page, run_id, after)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].sequence


def _page(connection: Connection, run_id: int, after: int) -> list[Step]:
    rows = connection.execute(_NEXT, {"run": run_id, "after": after}).all()
    return _complete(connection, rows)


def step(connection: Connection, run_id: int, sequence: int) -> Step:
    """One ticket of the run as a step; UsageError names the sequence numbers that exist."""
    rows = connection.execute(_ONE, {"run": run_id, "sequence": sequence}).all()
    if not rows:
        row = row_of(connection, run_id)
        held = f"it has 0 to {row.asked - 1}" if row.asked else "it has none yet"
        raise UsageError(f"run {row.name!r} has no step {sequence}; {held}")
    return _complete(connection, rows)[0]


def evaluation_of(connection: Connection, run_id: int, sequence: int) -> Evaluation | None:
    """The whole evaluation of a step, or None if it has none (yet)."""
    step(connection, run_id, sequence)
    query = select(ticket.c.id).where(ticket.c.run == run_id, ticket.c.sequence == sequence)
    return evaluations.of_ticket(connection, connection.execute(query).scalar_one())


def ancestors(connection: Connection, run_id: int, digest: str) -> list[Step]:
    """The steps that first produced the program and each of its ancestors, in sequence order."""
    programs.find(connection, digest)
    rows = connection.execute(_ANCESTORS, {"run": run_id, "of": digest}).all()
    return [
        one
        for start in range(0, len(rows), _PAGE)
        for one in _complete(connection, rows[start : start + _PAGE])
    ]


def _complete(connection: Connection, rows: Sequence[Row[Any]]) -> list[Step]:
    ratios = evaluations.ratios(connection, [row.evaluation for row in rows if row.evaluation])
    parents: dict[tuple[int, str], tuple[str, ...]] = {}
    for row in connection.execute(_PARENTS, {"tickets": [row.id for row in rows]}):
        key = (row.ticket, row.role)
        parents[key] = (*parents.get(key, ()), row.digest)
    charges = _charges(connection, [row.id for row in rows])
    judges = _judges(connection, {row.environment for row in rows})
    return [
        Step(
            sequence=row.sequence,
            operator=row.operator,
            method=row.method,
            tuning=bool(row.tuning),
            parents=parents.get((row.id, "used"))
            or (() if row.instance else parents.get((row.id, "selected"), ())),
            program=row.digest,
            assignment=programs.decode_assignment(row.assignment or "{}"),
            fidelity=Fidelity(row.fidelity or Fidelity.SEARCH),
            note=row.note,
            failure=row.failure,
            status=None if row.status is None else Status(row.status),
            custom=evaluations.boolean(row.custom),
            ratios=ratios.get(row.evaluation, {}),
            labels=tuple(label_name(name) for name, _ in json.loads(row.labels or "[]")),
            offer=None if row.offer is None else AddStatus(row.offer),
            slot=row.slot,
            evicted=row.evicted,
            device_time_s=row.device_time_s or 0.0,
            elapsed_s=row.elapsed_s,
            usd=charges.get(row.id, 0.0),
            judged_s=stages_s(json.loads(row.durations_s or "{}")),
            judge=judges.get(row.environment, ""),
        )
        for row in rows
    ]


def _charges(connection: Connection, tickets: Sequence[int]) -> dict[int, float | None]:
    """What the calls of tickets were charged; None if a price is unknown."""
    rows = connection.execute(_CHARGES, {"tickets": tickets})
    return {row.ticket: None if row.unknown else row.usd or 0.0 for row in rows}


def _judges(connection: Connection, environments: Iterable[int | None]) -> dict[int | None, str]:
    """Where evaluations took place, by the blob of their environment."""
    known = [each for each in environments if each is not None]
    return {each: json.loads(blobs.get(connection, each)).get("judge", "") for each in known}
