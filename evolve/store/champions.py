"""The best program of a run with the steps that led to it, and the models behind a program."""

from sqlalchemy import Connection, and_, bindparam, exists, or_, select

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import OPPONENT
from evolve.store import lineage
from evolve.store.rows import RunRow
from evolve.store.schema import (
    evaluation,
    evaluation_ratio,
    instance,
    program,
    request,
    ticket,
    ticket_parent,
)
from evolve.store.store import Store

_says_nothing = (Status.CORRECT.value, Status.INFRA.value, Status.TIMING_UNBOUNDED.value)
_again = ticket.alias("again")
_verdict = evaluation.alias("verdict")
_is_refuted = exists().where(
    _again.c.run == bindparam("run"),
    _again.c.instance == ticket.c.instance,
    _verdict.c.ticket == _again.c.id,
    or_(
        _verdict.c.status.not_in(_says_nothing),
        and_(_verdict.c.status == Status.CORRECT.value, _verdict.c.custom == 0),
    ),
)
_BEST = (
    select(instance.c.program)
    .select_from(ticket)
    .join(instance, instance.c.id == ticket.c.instance)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .join(
        evaluation_ratio,
        and_(
            evaluation_ratio.c.evaluation == evaluation.c.id,
            evaluation_ratio.c.baseline == bindparam("baseline"),
        ),
    )
    .where(
        ticket.c.run == bindparam("run"),
        ticket.c.operator != OPPONENT,
        evaluation.c.status == Status.CORRECT.value,
        evaluation.c.custom == 1,
        evaluation.c.fidelity.in_((Fidelity.SEARCH.value, Fidelity.VERIFY.value)),
        ~_is_refuted,
    )
    .order_by(
        (evaluation.c.fidelity == Fidelity.VERIFY.value).desc(),
        evaluation_ratio.c.ratio.desc(),
        ticket.c.sequence,
    )
    .limit(1)
)
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
    select(request.c.model)
    .distinct()
    .select_from(_ANCESTRY)
    .join(instance, instance.c.program == _ANCESTRY.c.program)
    .join(ticket, ticket.c.instance == instance.c.id)
    .join(request, request.c.ticket == ticket.c.id)
    .where(request.c.model != "")
)


def best_path(store: Store, run: RunRow) -> list[int]:
    """The steps that made a run's best program and its main ancestors, in order.

    The best is the one with the highest verified ratio; where nothing was verified, with the
    highest measured one. What another evaluation refuted does not count. Empty without one.
    """
    with store._database.read() as connection:
        key = {"run": run.id, "baseline": run.baseline}
        best: int | None = connection.execute(_BEST, key).scalar()
        return [] if best is None else _line_to(connection, run.id, best)


def _line_to(connection: Connection, run_id: int, program_id: int) -> list[int]:
    line: list[int] = []
    parent: int | None = program_id
    while parent is not None:
        made = connection.execute(_MAKER, {"run": run_id, "of": parent}).one_or_none()
        if made is None or (line and made.sequence >= line[-1]):
            break  # of another run, or offered once more after it had been a parent
        line.append(made.sequence)
        parent = made.program
    return line[::-1]


def models_behind(store: Store, digest: str) -> frozenset[str]:
    """The models that were asked for a program or one of its ancestors in any run of the file."""
    with store._database.read() as connection:
        return frozenset(connection.execute(_MODELS, {"of": digest}).scalars())
