"""Draws without repetition."""

import random
from collections.abc import Collection, Sequence
from itertools import accumulate

from evolve.core.protocols import Elite, Population

WINDOW = 1000
"""How many elites a policy reads one by one, if there are more; TTT-Discover keeps as many.

A choice then takes as long with 10^4 elites as with 10^3: a few milliseconds at most.
"""


def weighted(weights: Sequence[float], count: int, rng: random.Random) -> list[int]:
    """`count` different indices, one by one, each with probability proportional to its weight.

    If the weights that are left are all 0 (none given, or too small for a float), the choice is
    uniform. O(count * n).
    """
    left = list(weights)
    chosen: list[int] = []
    for _ in range(min(count, len(left))):
        sums = list(accumulate(left))
        if sums[-1] > 0:
            index = rng.choices(range(len(left)), cum_weights=sums)[0]
        else:
            index = unchosen(rng.randrange(len(left) - len(chosen)), chosen)
        chosen.append(index)
        left[index] = 0.0
    return chosen


def unchosen(number: int, chosen: Collection[int]) -> int:
    """The index with this number among those that are not chosen."""
    for taken in sorted(chosen):
        number += number >= taken
    return number


def then_best(chosen: Sequence[Elite], population: Population, count: int) -> tuple[Elite, ...]:
    """The chosen ones, then the best others, up to `count`."""
    parents = list(chosen[:count])
    taken = {elite.program for elite in parents}
    for elite in population[: count + len(parents)]:
        if len(parents) < count and elite.program not in taken:
            parents.append(elite)
    return tuple(parents)
