"""The steps that led to a program, and the models behind it."""

from sqlalchemy import Connection, and_, bindparam, select

from evolve.store.database.schema import call, instance, program, request, ticket, ticket_parent
from evolve.store.tables import lineage, programs
from evolve.store.tables.calls import ANSWERED_BY

_MAKER = (
    select(ticket.c.sequence, ticket_parent.c.program)
    .outerjoin(
        ticket_parent,
        and_(
            ticket_parent.c.ticket == ticket.c.id,
            ticket_parent.c.role == "used",
            ticket_parent.c.position == 0,
        ),
    )
    .where(ticket.c.id == lineage.first_ticket(bindparam("of")))
)
_line = select(program.c.id.label("program")).where(program.c.digest == bindparam("of"))
_line_of = _line.cte("line", recursive=True)
_ANCESTRY = _line_of.union(
    select(ticket_parent.c.program)
    .select_from(_line_of)
    .join(instance, instance.c.program == _line_of.c.program)
    .join(ticket, ticket.c.instance == instance.c.id)
    .join(ticket_parent, ticket_parent.c.ticket == ticket.c.id)
    .where(ticket_parent.c.role == "used")
)
_MODELS = (
    select(ANSWERED_BY)
    .distinct()
    .select_from(_ANCESTRY)
    .join(instance, instance.c.program == _ANCESTRY.c.program)
    .join(ticket, ticket.c.instance == instance.c.id)
    .join(request, request.c.ticket == ticket.c.id)
    .outerjoin(call, call.c.request == request.c.id)
    .where(request.c.model != "")
)


def line_to(connection: Connection, run_id: int, digest: str) -> list[int]:
    """The steps of a run that made a program and its main ancestors, in order."""
    line: list[int] = []
    parent: int | None = programs.find(connection, digest)
    while parent is not None:
        made = connection.execute(_MAKER, {"run": run_id, "of": parent}).one_or_none()
        if made is None or (line and made.sequence >= line[-1]):
            break  # of another run, or offered once more after it had been a parent
        line.append(made.sequence)
        parent = made.program
    return line[::-1]


def models_behind(connection: Connection, digest: str) -> frozenset[str]:
    """The models that a program or one of its ancestors comes from, in any run."""
    return frozenset(connection.execute(_MODELS, {"of": digest}).scalars())
