"""Which programs go with a parent: those that win where it does not."""

import math

from evolve.core.evaluation import Evaluation
from evolve.core.protocols import Context, Elite

_LOOKED_AT = 16  # of the best peers
_LOG_SLOWEST = math.log(0.5)  # of the parent's speed, for one that is better nowhere


def complementary(context: Context, parent: Elite, count: int) -> list[Elite]:
    """The peers that are most unlike the parent in what they are good at, the best of them first.

    One that is measurably faster in a case counts most, then one whose descriptors differ more
    (other kernels, another pattern); equals are in the archive's order.
    """
    own = context.facts.evaluation(parent.program)
    rated = []
    for peer in context.peers[:_LOOKED_AT]:
        if peer.program == parent.program:
            continue
        theirs = context.facts.evaluation(peer.program)
        wins = _wins(theirs, own)
        ratio = peer.fitness.value - parent.fitness.value
        if wins or ratio >= _LOG_SLOWEST:
            rated.append((-wins, -_unlike(peer, parent), peer))
    rated.sort(key=lambda row: row[:2])  # stable: the archive's order decides among equals
    return [peer for _, _, peer in rated[:count]]


def _wins(one: Evaluation | None, other: Evaluation | None) -> int:
    """In how many cases the first is faster, by intervals that do not overlap."""
    if one is None or other is None:
        return 0
    times = {case.name: case.times_ms.get("candidate") for case in other.cases}
    return sum(
        (mine := case.times_ms.get("candidate")) is not None
        and (its := times.get(case.name)) is not None
        and mine.high < its.low
        for case in one.cases
    )


def _unlike(one: Elite, other: Elite) -> int:
    names = {*one.descriptors, *other.descriptors}
    return sum(one.descriptors.get(name) != other.descriptors.get(name) for name in names)
