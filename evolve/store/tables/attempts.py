"""Steps as prompts describe them: the newest, those around a program, and how it came to be."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, or_, select

from evolve.core.evaluation import Evaluation, Fidelity, Label, Status
from evolve.core.lineage import NO_PROPOSALS
from evolve.core.measurement import Ratio
from evolve.core.protocols import FEEDBACK_LIMIT, Attempt
from evolve.core.records import TicketState
from evolve.store.database import blobs
from evolve.store.database.schema import (
    evaluation,
    evaluation_ratio,
    instance,
    program,
    run,
    ticket,
    ticket_parent,
)
from evolve.store.tables import evaluations, lineage, programs

WINDOW = 1000
"""How many of the newest steps `recent` looks through."""

DUPLICATE = "duplicate: "
"""How the failure of a ticket begins that proposed what the run holds already."""

_ATTEMPTS: Select[Any] = (
    select(
        ticket,
        program.c.digest,
        instance.c.assignment,
        evaluation.c.status,
        evaluation.c.custom,
        evaluation.c.labels,
        evaluation.c.feedback,
        evaluation_ratio.c.ratio,
        evaluation_ratio.c.ratio_low,
        evaluation_ratio.c.ratio_high,
    )
    .select_from(ticket)
    .join(run, run.c.id == ticket.c.run)
    .outerjoin(instance, instance.c.id == ticket.c.instance)
    .outerjoin(program, program.c.id == instance.c.program)
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(evaluation_ratio, evaluations.TO_BASELINE)
    .where(ticket.c.run == bindparam("run"), ticket.c.operator.not_in(NO_PROPOSALS))
)
_NEWEST = (
    _ATTEMPTS.where(
        ticket.c.sequence >= bindparam("since"),
        ticket.c.state == TicketState.TOLD.value,
        ticket.c.tuning == 0,
        or_(evaluation.c.status.is_(None), evaluation.c.status != Status.INFRA.value),
        ticket.c.failure.not_like(f"{DUPLICATE}%"),
    )
    .order_by(ticket.c.sequence.desc())
    .limit(bindparam("limit"))
)
_is_correct = evaluation.c.status == Status.CORRECT.value
_OUTCOMES = {
    None: _NEWEST,
    True: _NEWEST.where(or_(evaluation.c.status.is_(None), ~_is_correct)),
    False: _NEWEST.where(_is_correct),
}
_parent = program.alias("parent")
_CHILDREN = (
    _ATTEMPTS.join(ticket_parent, ticket_parent.c.ticket == ticket.c.id)
    .join(_parent, _parent.c.id == ticket_parent.c.program)
    .where(
        _parent.c.digest == bindparam("of"),
        ticket_parent.c.position == 0,
        or_(
            and_(ticket_parent.c.role == "used", instance.c.program != _parent.c.id),
            and_(ticket_parent.c.role == "selected", ticket.c.instance.is_(None)),
        ),
    )
    .order_by(ticket_parent.c.ticket.desc())
    .limit(bindparam("limit"))
)
_MAKER = _ATTEMPTS.where(
    ticket.c.id
    == lineage.first_ticket(
        select(_parent.c.id).where(_parent.c.digest == bindparam("of")).scalar_subquery()
    )
)
_MAIN_PARENT = (
    select(program.c.digest)
    .join(ticket_parent, ticket_parent.c.program == program.c.id)
    .where(
        ticket_parent.c.ticket == bindparam("ticket"),
        ticket_parent.c.role == "used",
        ticket_parent.c.position == 0,
    )
)
_PARENTS = (
    select(ticket_parent.c.ticket, program.c.digest)
    .join(program, program.c.id == ticket_parent.c.program)
    .where(
        ticket_parent.c.ticket.in_(bindparam("tickets", expanding=True)),
        ticket_parent.c.role == bindparam("role"),
    )
    .order_by(ticket_parent.c.ticket, ticket_parent.c.position)
)
_JUDGED = (
    select(ticket.c.id)
    .join(instance, instance.c.id == ticket.c.instance)
    .join(program, program.c.id == instance.c.program)
    .join(run, run.c.id == ticket.c.run)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(
        evaluation_ratio,
        and_(evaluations.TO_BASELINE, evaluation.c.fidelity == Fidelity.SEARCH.value),
    )
    .where(
        ticket.c.run == bindparam("run"),
        program.c.digest == bindparam("of"),
        evaluation.c.status != Status.INFRA.value,
    )
    .order_by(evaluation_ratio.c.ratio.desc().nulls_last(), ticket.c.sequence.desc())
    .limit(1)
)


def recent(
    connection: Connection, run_id: int, limit: int, operator: str | None, failed: bool | None
) -> list[Attempt]:
    """The newest told steps among the last `WINDOW`, newest first."""
    asked = select(run.c.asked).where(run.c.id == run_id)
    since = connection.execute(asked).scalar_one() - WINDOW
    query = _OUTCOMES[failed]
    key = {"run": run_id, "since": since, "limit": limit}
    if operator is not None:
        query = query.where(ticket.c.operator == bindparam("operator"))
        key["operator"] = operator
    return _attempts(connection, connection.execute(query, key).all())


def children(connection: Connection, run_id: int, digest: str, limit: int) -> list[Attempt]:
    """The newest steps that had a program as their main parent, and were to make another one."""
    key = {"run": run_id, "of": digest, "limit": limit}
    return _attempts(connection, connection.execute(_CHILDREN, key).all())


def ancestors(connection: Connection, run_id: int, digest: str, limit: int) -> list[Attempt]:
    """The steps that made a program along main parents, oldest first."""
    line: list[Attempt] = []
    program_of_interest: str | None = digest
    while program_of_interest is not None and len(line) < limit:
        key = {"run": run_id, "of": program_of_interest}
        rows = connection.execute(_MAKER, key).all()
        line += _attempts(connection, rows)
        before = rows and connection.execute(_MAIN_PARENT, {"ticket": rows[0].id}).scalar()
        program_of_interest = before or None
    return line[::-1]


def evaluation_of(connection: Connection, run_id: int, digest: str) -> Evaluation | None:
    """The run's evaluation of a program's best instance, else of its newest; without samples."""
    found = connection.execute(_JUDGED, {"run": run_id, "of": digest}).scalar()
    return None if found is None else evaluations.of_ticket(connection, found, samples=False)


def _attempts(connection: Connection, rows: Sequence[Row[Any]]) -> list[Attempt]:
    parents: dict[int, tuple[str, ...]] = {}
    for role in ("selected", "used"):  # those used hold, if there are any
        found: dict[int, tuple[str, ...]] = {}
        for identity, digest in connection.execute(
            _PARENTS, {"tickets": [row.id for row in rows], "role": role}
        ):
            found[identity] = (*found.get(identity, ()), digest)
        parents |= found
    return [_attempt(connection, row, parents.get(row.id, ())) for row in rows]


def _attempt(connection: Connection, row: Row[Any], parents: tuple[str, ...]) -> Attempt:
    return Attempt(
        sequence=row.sequence,
        operator=row.operator,
        parents=parents,
        program=row.digest,
        assignment=programs.decode_assignment(row.assignment or "{}"),
        fidelity=Fidelity(row.fidelity or Fidelity.SEARCH),
        note=row.note,
        failure=row.failure,
        status=None if row.status is None else Status(row.status),
        custom=evaluations.boolean(row.custom),
        ratio=None if row.ratio is None else Ratio(row.ratio, row.ratio_low, row.ratio_high),
        labels=tuple(Label(*label) for label in json.loads(row.labels or "[]")),
        feedback=blobs.get_unless_none(connection, row.feedback)[:FEEDBACK_LIMIT],
    )
