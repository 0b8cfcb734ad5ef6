"""A run's results with some programs before each of its steps."""

import bisect
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, select

from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.store.database.schema import evaluation, evaluation_ratio, instance, ticket
from evolve.store.tables.evaluations import SAYS_NOTHING
from evolve.store.training import bulk

MAX_REPEATS = 16
"""Further evaluations of one instance that are looked at; those that find fault come first."""

_MADE = (
    select(
        instance.c.program,
        instance.c.assignment,
        ticket.c.instance,
        ticket.c.sequence,
        evaluation.c.id.label("evaluation"),
        evaluation.c.status,
        evaluation.c.custom,
        evaluation.c.fidelity,
        evaluation_ratio.c.ratio,
        evaluation_ratio.c.ratio_low,
        evaluation_ratio.c.ratio_high,
    )
    .select_from(instance)
    .join(ticket, and_(ticket.c.instance == instance.c.id, ticket.c.run == bindparam("run")))
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(
        evaluation_ratio,
        and_(
            evaluation_ratio.c.evaluation == evaluation.c.id,
            evaluation_ratio.c.baseline == bindparam("baseline"),
        ),
    )
    .where(instance.c.program.in_(bindparam("ids", expanding=True)))
    .order_by(ticket.c.sequence)
)


class ProgramHistory:
    """All steps of a run that made or measured one program."""

    def __init__(self) -> None:
        self._of: dict[int, list[Row[Any]]] = {}  # steps by instance
        self._judged: list[int] = []  # sequence numbers of steps with a verdict
        self._best: list[Row[Any]] = []  # the best known right after each of them

    def add(self, row: Row[Any]) -> None:
        """Take the next step; they come in order."""
        self._of.setdefault(row.instance, []).append(row)
        if row.evaluation is not None and row.status != Status.INFRA.value:
            best = self._best[-1] if self._best else row
            self._judged.append(row.sequence)
            self._best.append(max(best, row, key=_rank))

    @property
    def maker(self) -> int:
        """The step that made the program first."""
        return self.first(next(iter(self._of)))

    def first(self, instance_id: int) -> int:
        """The step that made an instance of it first."""
        sequence: int = self._of[instance_id][0].sequence
        return sequence

    def best_before(self, sequence: int) -> Row[Any] | None:
        """The best by ratio that earlier steps measured in full, else their newest verdict."""
        place = bisect.bisect_left(self._judged, sequence)
        return self._best[place - 1] if place else None

    def later(self, instance_id: int, sequence: int) -> list[int]:
        """Evaluations (ids) of an instance by later steps, in order."""
        rows = [
            row
            for row in self._of[instance_id]
            if row.sequence > sequence and row.evaluation is not None
        ]
        kept = sorted(rows, key=lambda row: (not _finds_fault(row), -row.sequence))[:MAX_REPEATS]
        return [row.evaluation for row in sorted(kept, key=lambda row: row.sequence)]


def histories(
    connection: Connection, run_id: int, baseline: str, programs: Collection[int]
) -> Mapping[int, ProgramHistory]:
    """By program; those that the run never made are left out."""
    found: dict[int, ProgramHistory] = {}
    for part in bulk.in_parts(programs):
        key = {"run": run_id, "baseline": baseline, "ids": part}
        rows: list[Any] = list(connection.execute(_MADE, key).all())
        for row in rows:
            found.setdefault(row.program, ProgramHistory()).add(row)
    return found


def ratio_of(row: Row[Any] | None) -> Ratio | None:
    """The ratio of a step that measured a correct program in full."""
    if row is None or row.ratio is None or not _is_full(row):
        return None
    return Ratio(row.ratio, row.ratio_low, row.ratio_high)


def _is_full(row: Row[Any]) -> bool:
    return bool(row.fidelity == Fidelity.SEARCH.value and row.custom)


def _rank(row: Row[Any]) -> tuple[float, int]:
    known = row.ratio if row.ratio is not None and _is_full(row) else 0.0
    return known, row.sequence


def _finds_fault(row: Row[Any]) -> bool:
    if row.status == Status.CORRECT.value:
        return bool(row.custom == 0)  # NULL is not known
    return row.status not in SAYS_NOTHING
