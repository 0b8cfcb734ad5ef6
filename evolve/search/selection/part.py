"""A part of a population, which a policy may choose from as if it were all there is."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from evolve.core.protocols import Elite, Population, Visits


class Part(Population):
    """Some elites of a population; their results as parents are those of the whole population.

    A program whose nearest held ancestor is elsewhere is a root of the part.

    Args:
        whole: the population.
        elites: the part, best first.
        turn: the number of the ticket among those of the part.
    """

    def __init__(self, whole: Population, elites: Sequence[Elite], turn: int) -> None:
        self._whole = whole
        self.ranked = elites
        self._turn = turn

    @cached_property
    def _programs(self) -> frozenset[str]:
        return frozenset(elite.program for elite in self.ranked)

    @property
    def turn(self) -> int:
        return self._turn

    @property
    def islands(self) -> Mapping[str, Sequence[Elite]]:
        return {"": self.ranked} if self.ranked else {}

    def elite(self, program: str) -> Elite | None:
        return self._whole.elite(program) if program in self._programs else None

    def slot(self, program: str) -> str:
        return self._whole.slot(program)

    def visits(self, program: str) -> Visits:
        return self._whole.visits(program)

    def children(self, program: str) -> Sequence[Elite]:
        children = self._whole.children(program)
        return [child for child in children if child.program in self._programs]

    @property
    def roots(self) -> Sequence[Elite]:
        below = {
            child.program for elite in self.ranked for child in self._whole.children(elite.program)
        }
        roots = [elite for elite in self.ranked if elite.program not in below]
        return sorted(roots, key=lambda elite: elite.sequence)
