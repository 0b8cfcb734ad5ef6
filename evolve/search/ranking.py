"""Elites in order of fitness."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from evolve.core.protocols import Elite, rank


def age(elite: Elite) -> tuple[int, str]:
    """Sort key: the oldest first."""
    return elite.sequence, elite.program


class Ranking(Sequence[Elite]):
    """Elites in order, best first unless another key says otherwise.

    An order that depends only on the programs held, and not on their arrival, makes a resumed
    search select as the first one would have.
    """

    def __init__(
        self, elites: Iterable[Elite] = (), key: Callable[[Elite], tuple[Any, ...]] = rank
    ) -> None:
        self._key = key
        self._ranked = sorted(elites, key=key)

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
        insort(self._ranked, elite, key=self._key)

    def remove(self, elite: Elite) -> None:
        """Drop an elite that is held."""
        del self._ranked[bisect_left(self._ranked, self._key(elite), key=self._key)]
