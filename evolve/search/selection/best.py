"""The best programs, always or most of the time."""

import math
import random
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, Population
from evolve.search.selection.checks import check_number, check_whole
from evolve.search.selection.draws import unchosen, weighted


@dataclass(frozen=True, slots=True)
class Greedy:
    """The best elites, best first."""

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        return tuple(population[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam:
    """Of the `width` best elites the one that was asked least; a tie is the better one's.

    Beam search (Lowerre 1976) without rounds: a program that enters the beam is expanded as often
    as the others. KernelAgent and AccelOpt search kernels so, one round at a time.

    Raises:
        UsageError: `width` is below 1.
    """

    width: int = 5

    def __post_init__(self) -> None:
        check_whole("width", self.width, least=1, example=5)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        beam = population[: max(self.width, count)]
        return tuple(sorted(beam, key=lambda elite: population.visits(elite.program).asked)[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy:
    """The best elite that is left, or with probability `epsilon` any other one that is left.

    Raises:
        UsageError: `epsilon` is no probability.
    """

    epsilon: float = 0.3

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, least=0, most=1, example=0.3)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        chosen: list[int] = []
        for _ in range(min(count, len(population))):
            number, left = 0, len(population) - len(chosen)
            if left > 1 and rng.random() < self.epsilon:
                number = rng.randrange(1, left)
            chosen.append(unchosen(number, chosen))
        return tuple(population[index] for index in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreExploit:
    """Any elite, one of the top, or one drawn by speedup, each with a fixed probability.

    OpenEvolve's parents (`database.py`: exploration, exploitation, and a fitness-weighted rest) and
    KernelFoundry's 20/70/10 (arXiv 2603.12440). OpenEvolve exploits an archive of the 100 best,
    which takes in all programs until there are so many: a run of 100 exploits any of them.

    Args:
        exploration: probability of any elite, all alike.
        exploitation: probability of one of the top, all of them alike; the rest goes to a draw in
            proportion to speedup.
        top: how many elites are the top.

    Raises:
        UsageError: a setting is out of range, or both probabilities add up to more than 1.
    """

    exploration: float = 0.2
    exploitation: float = 0.7
    top: int = 100

    def __post_init__(self) -> None:
        check_number("exploration", self.exploration, least=0, most=1, example=0.2)
        check_number("exploitation", self.exploitation, least=0, most=1, example=0.7)
        check_whole("top", self.top, least=1, example=100)
        if self.exploration + self.exploitation > 1:
            raise UsageError(
                f"selection.exploration and selection.exploitation are {self.exploration:g} and "
                f"{self.exploitation:g}, together more than 1; lower one of them"
            )

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        size = len(population)
        chosen: list[int] = []
        for _ in range(min(count, size)):
            left, draw = size - len(chosen), rng.random()
            if draw < self.exploration:
                index = unchosen(rng.randrange(left), chosen)
            elif draw < self.exploration + self.exploitation:
                # The top of the remaining ones: as large as before if others are chosen already.
                index = unchosen(rng.randrange(min(self.top, left)), chosen)
            else:
                index = self._by_speedup(population, chosen, rng)
            chosen.append(index)
        return tuple(population[index] for index in chosen)

    def _by_speedup(self, population: Population, chosen: list[int], rng: random.Random) -> int:
        best = population[0].fitness.value
        weights = [math.exp(elite.fitness.value - best) for elite in population]
        for index in chosen:
            weights[index] = 0.0
        return next(
            index for index in weighted(weights, len(chosen) + 1, rng) if index not in chosen
        )
