"""Results of programs as parents: counts that every told ticket adds to along main parents."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    Connection,
    Float,
    Row,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    null,
    select,
    update,
)

from evolve.core.elites import Visits
from evolve.store.database.dialect import WHOLE, upsert
from evolve.store.database.schema import (
    archive_slot,
    is_open,
    program,
    ticket,
    ticket_parent,
    visit,
)
from evolve.store.tables import programs

GENERATIONS = 64
"""How many ancestors of a ticket's main parent it is counted at."""

_identity = select(program.c.id).where(program.c.digest == bindparam("digest"))
_KNOW = upsert(visit)
_KNOW = _KNOW.on_conflict_do_update(
    index_elements=[visit.c.run, visit.c.program],
    set_={
        "parent": func.coalesce(visit.c.parent, _KNOW.excluded.parent),  # the first answer stands
        "own": _KNOW.excluded.own,
        "tuned": case((_KNOW.excluded.tuned > 0, 1), else_=visit.c.tuned),
    },
)
_ASK = upsert(visit).values(asked=1)
_ASK = _ASK.on_conflict_do_update(
    index_elements=[visit.c.run, visit.c.program], set_={"asked": visit.c.asked + 1}
)
_UNASK = (
    update(visit)
    .where(visit.c.run == bindparam("of"), visit.c.program == bindparam("at"))
    .values(asked=visit.c.asked - 1)
)
_main_parent = (
    select(ticket_parent.c.program)
    .where(
        ticket_parent.c.ticket == bindparam("ticket"),
        ticket_parent.c.role == "selected",
        ticket_parent.c.position == 0,
    )
    .scalar_subquery()
)


def _line(start: Select[Any]) -> CTE:
    """Programs (column `program`) and their ancestors along main parents, `depth` from 0."""
    line = start.add_columns(literal(0).label("depth")).cte("line", recursive=True)
    parents = (
        select(visit.c.parent, line.c.depth + 1)
        .join(line, visit.c.program == line.c.program)
        .where(
            visit.c.run == bindparam("of"),
            visit.c.parent.is_not(None),
            line.c.depth < GENERATIONS,
        )
    )
    return line.union_all(parents)


_counted = _line(select(_main_parent.label("program")))
_is_own = visit.c.program == _main_parent
_score = cast(bindparam("score"), Float)
_TELL = (
    update(visit)
    .where(visit.c.run == bindparam("of"), visit.c.program.in_(select(_counted.c.program)))
    .values(
        told=visit.c.told + case((_is_own, 1), else_=0),
        failed=visit.c.failed + case((_is_own, bindparam("failures", type_=WHOLE)), else_=0),
        subtree=visit.c.subtree + 1,
        scored=visit.c.scored + case((_score.is_not(None), 1), else_=0),
        value=visit.c.value + func.coalesce(_score, 0.0),
        stale=visit.c.stale + 1,
    )
)
_this = and_(visit.c.run == bindparam("of"), visit.c.program == bindparam("at"))
_FOLLOWED = [
    visit.c[name] for name in ("program", "parent", "own", "tuned", "best", "top", "stale")
]
_line_up = (
    select(*_FOLLOWED, cast(null(), WHOLE).label("child"), literal(0).label("depth"))
    .where(_this)
    .cte("line_up", recursive=True)
)
_line_up = _line_up.union_all(
    select(*_FOLLOWED, _line_up.c.program, _line_up.c.depth + 1)
    .join(_line_up, visit.c.program == _line_up.c.parent)
    .where(visit.c.run == bindparam("of"), _line_up.c.depth <= GENERATIONS)
)
_LINE_UP = select(  # of one table and in no order: so SQLite goes up only as far as is read
    _line_up,
    select(func.max(visit.c.top))
    .where(
        visit.c.run == bindparam("of"),
        visit.c.parent == _line_up.c.program,
        visit.c.program.is_distinct_from(_line_up.c.child),
    )
    .scalar_subquery()
    .label("others"),
)
_RISE = (
    update(visit)
    .where(_this)
    .values(best=bindparam("now"), top=bindparam("highest"), stale=bindparam("since"))
)
_followed = _line(select(_identity.scalar_subquery().label("program")))
_awaited = _line(
    select(ticket_parent.c.program.label("program"))
    .join(ticket, ticket.c.id == ticket_parent.c.ticket)
    .where(
        ticket.c.run == bindparam("of"),
        is_open,
        ticket_parent.c.role == "selected",
        ticket_parent.c.position == 0,
    )
)
_PENDING = (
    select(program.c.digest, func.count().label("pending"))
    .join(_awaited, _awaited.c.program == program.c.id)
    .group_by(program.c.id)
)
_OF_LINE = (
    select(visit, program.c.digest)
    .join(_followed, _followed.c.program == visit.c.program)
    .join(program, program.c.id == visit.c.program)
    .where(visit.c.run == bindparam("of"))
    .order_by(_followed.c.depth)
)
_OF_HELD = (
    select(visit, program.c.digest)
    .join(program, program.c.id == visit.c.program)
    .where(
        visit.c.run == bindparam("of"),
        visit.c.program.in_(
            select(archive_slot.c.program).where(archive_slot.c.run == bindparam("of"))
        ),
    )
)
_held = (
    select(archive_slot.c.program.label("program"))
    .where(archive_slot.c.run == bindparam("of"))
    .distinct()
    .cte("held", recursive=True)
)
_reached = _held.union(
    select(visit.c.parent)
    .join(_held, _held.c.program == visit.c.program)
    .where(visit.c.run == bindparam("of"), visit.c.parent.is_not(None))
)
_parent = program.alias("parent")
_LINKS = (
    select(program.c.digest, _parent.c.digest.label("parent"))
    .select_from(_reached)
    .join(visit, and_(visit.c.run == bindparam("of"), visit.c.program == _reached.c.program))
    .join(program, program.c.id == visit.c.program)
    .join(_parent, _parent.c.id == visit.c.parent)
)


def count_asked(connection: Connection, run_id: int, program_id: int) -> None:
    """Count a ticket at its main parent."""
    connection.execute(_ASK, {"run": run_id, "program": program_id})


def uncount_asked(connection: Connection, run_id: int, program_id: int) -> None:
    """Take a ticket back that has another main parent by now."""
    connection.execute(_UNASK, {"of": run_id, "at": program_id})


def count_told(
    connection: Connection, told: Row[Any], *, failed: bool, score: float | None
) -> None:
    """Count a ticket (its row) that is told now, at its main parent and that one's ancestors.

    Args:
        connection: of the transaction.
        told: the row.
        failed: whether it ended without a correct evaluation.
        score: its fitness value; None if it has none.
    """
    counted = {"of": told.run, "ticket": told.id, "failures": int(failed), "score": score}
    connection.execute(_TELL, counted)


def settle(
    connection: Connection,
    run_id: int,
    program_id: int,
    parent: str | None,
    value: float | None,
    *,
    tuned: bool,
) -> None:
    """Remember what is known of a program by now, and follow it up its line, up or down.

    Each program above has as its best the highest that is known below it, and of itself where its
    own tickets measured it. This ends where nothing changes, mostly at the first parent.

    Args:
        connection: of the transaction.
        run_id: the run.
        program_id: the program.
        parent: digest of its main parent, of which the first answer stands.
        value: its fitness; None if it is refuted.
        tuned: whether the ticket had the program as its main parent.
    """
    known = {"run": run_id, "program": program_id, "own": value, "tuned": int(tuned)}
    above = None if parent is None else programs.find(connection, parent)
    connection.execute(_KNOW, known | {"parent": above})
    key = {"of": run_id, "at": program_id}
    below: float | None = None  # what the row before this one has as its top by now
    changed = []
    with connection.execute(_LINE_UP, key) as line:
        for row in line:
            best = _highest(row.others, below, row.own if row.tuned else None)
            below = _highest(best, row.own)
            has_risen = best is not None and (row.best is None or best > row.best)
            if (best, below) != (row.best, row.top):
                since = 0 if has_risen else row.stale
                risen = {"at": row.program, "now": best, "highest": below, "since": since}
                changed.append({"of": run_id} | risen)
            if below == row.top:
                break
    if changed:
        connection.execute(_RISE, changed)


def _highest(*values: float | None) -> float | None:
    return max((value for value in values if value is not None), default=None)


def of_line(connection: Connection, run_id: int, digest: str) -> dict[str, Visits]:
    """The visits of a program, then of its ancestors along main parents, nearest first."""
    rows = connection.execute(_OF_LINE, {"of": run_id, "digest": digest}).all()
    return _by_program(connection, run_id, rows)


def of_held(connection: Connection, run_id: int) -> dict[str, Visits]:
    """The visits of all programs that the archive holds."""
    rows = connection.execute(_OF_HELD, {"of": run_id}).all()
    return _by_program(connection, run_id, rows)


def links(connection: Connection, run_id: int) -> dict[str, str]:
    """The main parent of every program that the archive holds, and of all their ancestors."""
    return {row.digest: row.parent for row in connection.execute(_LINKS, {"of": run_id})}


def _by_program(connection: Connection, run_id: int, rows: Sequence[Row[Any]]) -> dict[str, Visits]:
    """Counts by program, with what is under way: that is few tickets, which are looked up."""
    found = connection.execute(_PENDING, {"of": run_id})
    pending: dict[str, int] = {row.digest: row.pending for row in found}
    return {row.digest: _visits(row, pending.get(row.digest, 0)) for row in rows}


def _visits(row: Row[Any], pending: int) -> Visits:
    return Visits(
        asked=row.asked,
        told=row.told,
        failed=row.failed,
        subtree=row.subtree,
        scored=row.scored,
        value=row.value,
        best=row.best,
        stale=row.stale,
        pending=pending,
    )
