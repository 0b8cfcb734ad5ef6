"""Tickets as they are stored: whole, with texts, replies, proposal and evaluation."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from evolve.core.evaluation import Fidelity
from evolve.core.model import Exchange
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.records import Ticket, TicketState
from evolve.store.database import blobs, schema
from evolve.store.database.schema import blob, evaluation, instance, program, ticket, ticket_parent
from evolve.store.tables import calls, evaluations, lineage, programs, requests

_PARENTS = (
    select(ticket_parent.c.role, program.c.digest)
    .join(program, program.c.id == ticket_parent.c.program)
    .where(ticket_parent.c.ticket == bindparam("ticket"))
    .order_by(ticket_parent.c.position)
)
_PROPOSAL = (
    select(blob.c.codec, blob.c.bytes, instance.c.assignment)
    .select_from(instance)
    .join(program, program.c.id == instance.c.program)
    .join(blob, blob.c.id == program.c.source)
    .where(instance.c.id == bindparam("instance"))
)
_OPEN = (
    select(ticket)
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .where(ticket.c.run == bindparam("run"), schema.is_open)
    .order_by(evaluation.c.id.nulls_last(), ticket.c.sequence)
)
_AT = select(ticket).where(
    ticket.c.run == bindparam("run"), ticket.c.sequence == bindparam("sequence")
)


def still_open(connection: Connection, run_id: int) -> list[Ticket]:
    """Tickets that are not told: those with a verdict as it came, then the others as asked."""
    rows = connection.execute(_OPEN, {"run": run_id}).all()
    return [load(connection, row) for row in rows]


def at(connection: Connection, run_id: int, sequence: int) -> Ticket:
    """The ticket of a run with this number; UsageError says which there are."""
    lineage.step(connection, run_id, sequence)
    key = {"run": run_id, "sequence": sequence}
    return load(connection, connection.execute(_AT, key).one())


def load(connection: Connection, row: Row[Any]) -> Ticket:
    """The whole ticket of a row, with its proposal's source and its evaluation."""
    parents: dict[str, tuple[str, ...]] = {"selected": (), "used": ()}
    for role, digest in connection.execute(_PARENTS, {"ticket": row.id}):
        parents[role] += (digest,)
    exchanges, asked = _rounds(connection, row.id) if row.model else ((), None)
    return Ticket(
        id=row.id,
        sequence=row.sequence,
        state=TicketState(row.state),
        operator=row.operator,
        parents=parents["selected"],
        model=row.model,
        method=row.method,
        tuning=bool(row.tuning),
        tunings=row.tunings,
        exchanges=exchanges,
        request=None if asked is None else requests.load(connection, asked),
        sample=0 if asked is None else asked.sample,
        revision=0 if asked is None else asked.revision,
        proposal=_proposal(connection, row, parents["used"]),
        failure=row.failure,
        evaluation=evaluations.of_ticket(connection, row.id),
        attempts=row.attempts,
    )


def _rounds(connection: Connection, ticket_id: int) -> tuple[tuple[Exchange, ...], Row[Any] | None]:
    """The answered rounds of a ticket, and the row of the one that is open."""
    exchanges: tuple[Exchange, ...] = ()
    for row in requests.rows_of(connection, ticket_id):
        reply = calls.reply_of(connection, row.id)
        if reply is None:
            return exchanges, row
        exchanges += (Exchange(requests.load(connection, row), reply),)
    return exchanges, None


def _proposal(connection: Connection, row: Row[Any], parents: tuple[str, ...]) -> Proposal | None:
    if row.instance is None:
        return None
    codec, data, assignment = connection.execute(_PROPOSAL, {"instance": row.instance}).one()
    return Proposal(
        program=Program(blobs.decode(codec, data)),
        assignment=programs.decode_assignment(assignment),
        fidelity=Fidelity(row.fidelity),
        parents=parents,
        note=row.note,
        is_reevaluation=bool(row.again),
    )
