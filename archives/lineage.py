"""One line of versions, each as fast as the best one before it."""

import math

from archives.checks import checked_number
from archives.topk import TopK
from evolve.core.protocols import AddStatus, Elite, Offer


class Lineage(TopK):
    """Accepts programs that are at least as fast as the best one held.

    That is the commit gate of AVO (arXiv 2603.24517): a version is correct, and no slower than any
    before it. A held program that is measured again stays, whatever the result.

    Args:
        capacity: most versions; the slowest is removed first.
        slack: how much slower than the best a version may be, as a share of its speed.

    Raises:
        UsageError: a setting is out of range.
    """

    def __init__(self, *, capacity: int = 1000, slack: float = 0.001) -> None:
        super().__init__(capacity=capacity)
        self._slack = -math.log1p(-checked_number("slack", slack, 0, 0.5, example=0.001))

    def offer(self, elite: Elite) -> Offer:
        """Keep the elite or not; see `evolve.core.protocols.Archive`."""
        best = self._table.at(0) if len(self._table) else elite
        is_held = self._table.slot_of(elite.program) is not None
        if not is_held and elite.fitness.value < best.fitness.value - self._slack:
            return Offer(AddStatus.NOT_ADDED)
        return super().offer(elite)
