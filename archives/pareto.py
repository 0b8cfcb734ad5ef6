"""Speed against other ends: the programs that no other one beats in everything."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archives.bounded import Bounded
from archives.descriptors import of_text
from archives.rows import Rows
from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, rank

Goal = str | Sequence[str]
DEFAULT: Mapping[str, Goal | None] = {
    "worst_case": "max",
    "precision_path": ("fp64", "fp32", "tf32", "half"),
    "error": "min",
    "compile_s": "min",
}
_CHUNK = 256  # rows that are compared with all at once
_BEATEN = -1  # the last column: how many held programs beat this one


class Pareto(Bounded):
    """Keeps the programs that are beaten least often in fitness and further objectives.

    A program is beaten by one that is as good in every objective and better in one. A full archive
    gives up the program beaten by most others (Fonseca and Fleming 1993), the slowest of them; if
    none is dominated, the one with the nearest neighbours (crowding distance, Deb and others 2002).
    The fastest program is lost to a faster one only.

    Args:
        objectives: by descriptor `max`, `min`, or its words, best first; None leaves it out.
            Fitness is always one more. A descriptor that a program lacks is worse than any.
        capacity: the most programs held.

    Raises:
        UsageError: a setting is out of range.
    """

    def __init__(
        self, *, objectives: Mapping[str, Goal | None] = DEFAULT, capacity: int = 1000
    ) -> None:
        super().__init__(capacity=capacity)
        if not isinstance(objectives, Mapping) or not any(objectives.values()):
            raise UsageError(
                "archive.objectives must map descriptors to max, min or words, got "
                f"{objectives!r}; write e.g. archive.objectives={{compile_s: min}}"
            )
        # By name, for a configuration comes back from the store with its keys in another order.
        self._goals = {
            name: _checked(name, goal)
            for name, goal in sorted(objectives.items())
            if goal is not None
        }
        self.describes = of_text(self._goals)
        self._rows = Rows(len(self._goals) + 2)

    def _weakest(self, newcomer: Elite) -> Elite | None:
        row, held = self._row(newcomer), self._rows.values
        table = np.asfortranarray(np.vstack([held, row]))
        beaten = table[:, _BEATEN]
        beaten[:-1] += _beaten_by(row, held)
        beaten[-1] = _beaten_by(held, row).sum()
        leader = min(newcomer, self._table.at(0), key=rank)
        beaten[-1 if leader is newcomer else self._rows.place(leader.program)] = -1
        apart = np.zeros(len(table))
        if beaten.max() == 0:
            apart = _crowding(table[:, :_BEATEN])
        apart[beaten < beaten.max()] = math.inf
        programs = [*self._rows.programs, newcomer.program]
        worst = [programs[place] for place in np.flatnonzero(apart == apart.min())]
        loser = max((self._table.elite(program) or newcomer for program in worst), key=rank)
        return None if loser is newcomer else loser

    def _row(self, elite: Elite) -> NDArray[np.float64]:
        """Fitness and objectives, more is better, and a place for the count."""
        values = [_worth(elite.descriptors.get(name), goal) for name, goal in self._goals.items()]
        return np.array([elite.fitness.value, *values, 0.0])

    def _added(self, elite: Elite) -> None:
        row, held = self._row(elite), self._rows.values
        row[_BEATEN] = _beaten_by(held, row).sum()
        held[:, _BEATEN] += _beaten_by(row, held)
        self._rows.add(elite.program, row)

    def _removed(self, elite: Elite) -> None:
        self._rows.drop(elite.program)
        held = self._rows.values
        held[:, _BEATEN] -= _beaten_by(self._row(elite), held)

    def _restored(self) -> None:
        self._rows = Rows(len(self._goals) + 2)
        for elite in self._table.slots().values():
            self._rows.add(elite.program, self._row(elite))
        self._rows.values[:, _BEATEN] = _beaten(self._rows.values[:, :_BEATEN])


def _checked(name: str, goal: object) -> str | tuple[str, ...]:
    if goal in ("max", "min"):
        return str(goal)
    words = tuple(goal) if isinstance(goal, Sequence) and not isinstance(goal, str) else ()
    if not words or len(set(words)) < len(words) or not all(isinstance(w, str) for w in words):
        raise UsageError(
            f"archive.objectives.{name} is {goal!r}; write max, min, or its words, best first"
        )
    return words


def _worth(value: object, goal: str | tuple[str, ...]) -> float:
    """A descriptor's value as a number of which more is better; -inf if there is none."""
    if not isinstance(goal, str):
        return -float(goal.index(value)) if value in goal else -math.inf
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return -math.inf
    return float(value) if goal == "max" else -float(value)


def _beaten_by(better: NDArray[Any], rows: NDArray[Any]) -> NDArray[np.bool_]:
    """True if a row of `better` beats the row of `rows`; one of them may be a single row."""
    theirs, ours = better[..., :_BEATEN], rows[..., :_BEATEN]
    return np.asarray((theirs >= ours).all(-1) & (theirs > ours).any(-1))


def _beaten(rows: NDArray[Any]) -> NDArray[np.int64]:
    """By how many others each row is beaten: as many as are nowhere worse, without its equals."""
    if not len(rows):
        return np.zeros(0, np.int64)
    _, group, sizes = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    nowhere_worse = np.zeros(len(rows), np.int64)
    for start in range(0, len(rows), _CHUNK):
        some = rows[start : start + _CHUNK]
        better = np.ones((len(some), len(rows)), np.bool_)
        for ours, theirs in zip(some.T, rows.T, strict=True):
            better &= theirs >= ours[:, None]
        nowhere_worse[start : start + _CHUNK] = better.sum(1)
    return nowhere_worse - sizes[group.reshape(-1)]


def _crowding(rows: NDArray[Any]) -> NDArray[Any]:
    """How far apart the neighbours of each row are, summed over the objectives.

    Infinite at the ends of an objective; nothing if two are equal, whichever comes first.
    """
    total = np.zeros(len(rows))
    for column in rows.T:
        known = column[np.isfinite(column)]
        filled = np.where(np.isfinite(column), column, known.min() if len(known) else 0.0)
        values, places, counts = np.unique(filled, return_inverse=True, return_counts=True)
        if len(values) > 1:
            gaps = np.full(len(values), math.inf)
            gaps[1:-1] = (values[2:] - values[:-2]) / (values[-1] - values[0])
            gaps[counts > 1] = 0.0
            total += gaps[places]
    return total
