"""Programs together with the ancestors that they descend from."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import ClassVar

from archives.bounded import Bounded
from evolve.core.protocols import Elite, rank


class Tree(Bounded):
    """Keeps paths: a program with held children leaves only after them.

    For searches along the lineage (MCTS, a single line), which have to find their way from a root
    through steps that were no gain. A full tree gives up its worst leaf for a newcomer that is
    better, never the newcomer's own parent; if it is nothing but a line, its worst program. The
    best program is lost to a better one only. Lines are those of main parents.

    Raises:
        UsageError: the capacity is out of range.
    """

    offers: ClassVar[frozenset[str]] = frozenset({"tree"})

    def __init__(self, *, capacity: int = 1000) -> None:
        super().__init__(capacity=capacity)
        self._children: Counter[str] = Counter()  # held children by main parent, held or not
        self._leaves: list[tuple[float, int, str]] = []  # best first

    def _weakest(self, newcomer: Elite) -> Elite | None:
        leader = min(newcomer, self._table.at(0), key=rank)
        kept = {leader.program, _parent(newcomer)}
        loser = next(self._worst(self._leaves, kept), None) or next(self._anyone(kept), None)
        if loser is None:  # the only one is the parent, or was the best
            return self._table.at(-1) if newcomer is leader else None
        behind = newcomer is not leader and newcomer.fitness.value <= loser.fitness.value
        return None if behind else loser

    def _worst(self, ranks: list[tuple[float, int, str]], kept: set[str]) -> Iterator[Elite]:
        for *_, program in reversed(ranks):
            elite = self._table.elite(program)
            if elite is not None and program not in kept:
                yield elite

    def _anyone(self, kept: set[str]) -> Iterator[Elite]:
        places = islice(range(-1, -len(self._table) - 1, -1), len(kept) + 1)
        return (elite for elite in map(self._table.at, places) if elite.program not in kept)

    def _added(self, elite: Elite) -> None:
        parent = _parent(elite)
        self._children[parent] += 1
        if self._children[parent] == 1:
            self._unleaf(parent)
        if not self._children[elite.program]:
            insort(self._leaves, rank(elite))

    def _removed(self, elite: Elite) -> None:
        parent = _parent(elite)
        if not self._children[elite.program]:
            del self._leaves[bisect_left(self._leaves, rank(elite))]
        self._children[parent] -= 1
        held = self._table.elite(parent)
        if not self._children[parent]:
            del self._children[parent]
            if held is not None:
                insort(self._leaves, rank(held))

    def _unleaf(self, program: str) -> None:
        elite = self._table.elite(program)
        if elite is not None:
            del self._leaves[bisect_left(self._leaves, rank(elite))]

    def _restored(self) -> None:
        elites = self._table.slots().values()
        self._children = Counter(map(_parent, elites))
        self._leaves = [rank(elite) for elite in elites if not self._children[elite.program]]


def _parent(elite: Elite) -> str:
    """The main parent; empty for a root."""
    return elite.parents[0] if elite.parents and elite.parents[0] != elite.program else ""
