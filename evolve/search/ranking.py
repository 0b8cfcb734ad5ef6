"""Elites in order of fitness."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from evolve.core.protocols import Elite, rank


class Ranking(Sequence[Elite]):
    """Elites, best first.

    An order that depends on what is held only, and not on how it came in, makes a resumed search
    select as the first one would have.
    """

    def __init__(self, elites: Iterable[Elite] = ()) -> None:
        self._ranked = sorted(elites, key=rank)

    def __len__(self) -> int:
        return len(self._ranked)

    @overload
    def __getitem__(self, index: int) -> Elite: ...
    @overload
    def __getitem__(self, index: slice) -> list[Elite]: ...
    def __getitem__(self, index: int | slice) -> Elite | list[Elite]:
        return self._ranked[index]

    def __iter__(self) -> Iterator[Elite]:
        return iter(self._ranked)

    def add(self, elite: Elite) -> None:
        """Take in an elite that is not held."""
        insort(self._ranked, elite, key=rank)

    def remove(self, elite: Elite) -> None:
        """Drop an elite that is held."""
        del self._ranked[bisect_left(self._ranked, rank(elite), key=rank)]
