"""The best programs, one line of them."""

from archives.bounded import Bounded
from evolve.core.protocols import Elite


class TopK(Bounded):
    """Keeps the `capacity` programs with the highest fitness.

    A program is replaced only by one with a strictly higher fitness value.

    >>> TopK(capacity=2).slots()
    {}

    Raises:
        UsageError: the capacity is out of range.
    """

    def __init__(self, *, capacity: int = 100) -> None:
        super().__init__(capacity=capacity)

    def _weakest(self, newcomer: Elite) -> Elite | None:
        worst = self._table.at(-1)
        return worst if newcomer.fitness.value > worst.fitness.value else None
