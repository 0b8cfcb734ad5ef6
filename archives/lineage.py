"""One line of versions, each of which reached what was the best when it came."""

import math

from archives.checks import checked_number
from archives.topk import TopK
from evolve.core.protocols import AddStatus, Elite, Offer


class Lineage(TopK):
    """Takes in programs that are as fast as the best one held, or faster: a gate for commits.

    So a version enters the lineage of AVO (arXiv 2603.24517): it is correct, and no slower than any
    before it. What is measured again stays, whatever comes of it.

    Args:
        capacity: of versions; the slowest goes first.
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
