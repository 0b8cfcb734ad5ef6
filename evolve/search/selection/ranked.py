"""Draws by rank: only the order of the elites counts, and not how far they are apart."""

import random
from dataclasses import dataclass

from evolve.core.protocols import Elite, Population
from evolve.search.selection.checks import check_number, check_whole
from evolve.search.selection.draws import unchosen, weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """For each parent the best of `size` elites drawn without repetition (Brindle 1981).

    1 is a uniform choice; a `size` no smaller than the archive is greedy.

    Raises:
        UsageError: `size` is below 1.
    """

    size: int = 4

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1, example=4)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        chosen: list[int] = []
        for _ in range(min(count, len(population))):
            left = len(population) - len(chosen)
            entrants = rng.sample(range(left), min(self.size, left))
            chosen.append(unchosen(min(entrants), chosen))
        return tuple(population[index] for index in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Linear ranking (Baker 1985): the best is drawn `pressure` times as often as the average.

    Drawn in constant time: a tournament of two, which is linear ranking with pressure 2, with
    probability `pressure` - 1, and else any elite.

    Raises:
        UsageError: `pressure` is not from 1 (all alike) to 2 (never the worst).
    """

    pressure: float = 1.7

    def __post_init__(self) -> None:
        check_number("pressure", self.pressure, least=1, most=2, example=1.7)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        chosen: list[int] = []
        for _ in range(min(count, len(population))):
            left = len(population) - len(chosen)
            entrants = 2 if left > 1 and rng.random() < self.pressure - 1 else 1
            chosen.append(unchosen(min(rng.sample(range(left), entrants)), chosen))
        return tuple(population[index] for index in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """The elite of rank r (from 1) is drawn with probability proportional to r ** -alpha.

    ShinkaEvolve's `power_law` (`database/parents.py`); 0 draws all alike, more presses harder.

    Raises:
        UsageError: `alpha` is negative.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, least=0, example=1.0)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        weights = [rank**-self.alpha for rank in range(1, len(population) + 1)]
        return tuple(population[index] for index in weighted(weights, count, rng))
