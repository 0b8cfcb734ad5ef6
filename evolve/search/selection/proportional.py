"""Draws in proportion to a weight of each elite."""

import math
import random
from dataclasses import dataclass

from evolve.core.protocols import Elite, Population
from evolve.search.selection.checks import check_above_0, check_number
from evolve.search.selection.draws import WINDOW, weighted


@dataclass(frozen=True, slots=True, kw_only=True)
class Boltzmann:
    """Probability proportional to exp(log speedup / temperature) (Goldberg 1990).

    At temperature 1 a program twice as fast is drawn twice as often; at 0.1 one that is 10 % faster
    is drawn 2.6 times as often. The best 1000 elites take part.

    Raises:
        UsageError: `temperature` is not above 0.
    """

    temperature: float = 0.1

    def __post_init__(self) -> None:
        check_above_0("temperature", self.temperature, example=0.1)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        elites = population[:WINDOW]
        best = elites[0].fitness.value if elites else 0.0
        cold = 1.0 / self.temperature
        weights = [math.exp((elite.fitness.value - best) * cold) for elite in elites]
        return tuple(elites[index] for index in weighted(weights, count, rng))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedSigmoid:
    """Good programs with few children: ShinkaEvolve's `weighted` (arXiv 2509.19349).

    The weight is sigmoid(sharpness * (f - median) / MAD) / (1 + n): f is the log speedup, MAD the
    median of the absolute deviations from the median (`database/parents.py`), and n counts the
    tickets of the program, where Shinka counts its children; those under way are in, so that
    parallel asks spread. The best 1000 elites take part; Shinka's archive holds 40.

    Raises:
        UsageError: `sharpness` is negative.
    """

    sharpness: float = 10.0

    def __post_init__(self) -> None:
        check_number("sharpness", self.sharpness, least=0, example=10)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        elites = list(population[:WINDOW])
        values = [elite.fitness.value for elite in elites]
        median = _middle(values)
        # Sorted values fall to the median and rise from it: quick to sort again.
        deviation = _middle(sorted([abs(value - median) for value in values]))
        slope = self.sharpness / max(deviation, 1e-6) / 2
        visits, tanh = population.visits, math.tanh  # sigmoid(x) is (1 + tanh(x / 2)) / 2
        weights = [
            (1 + tanh(slope * (value - median))) / (1 + visits(elite.program).asked)
            for value, elite in zip(values, elites, strict=True)
        ]
        return tuple(elites[index] for index in weighted(weights, count, rng))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curiosity:
    """Programs whose children were kept: the curiosity score (Cully and Demiris 2018).

    The score of a program starts at 1, rises by 1 for a child that is held and falls by `penalty`
    for a finished ticket that left none; it is the weight of the draw. "Quality and diversity
    optimization: a unifying modular framework", IEEE Transactions on Evolutionary Computation
    22(2), has the rule; start and `floor` are this project's. Of more than 1000 elites a random
    1000 take part.

    Args:
        penalty: the cost of a ticket without a held child.
        floor: the least weight, so that nothing is ruled out for ever.

    Raises:
        UsageError: a setting is negative, or `floor` is 0.
    """

    penalty: float = 0.5
    floor: float = 0.05

    def __post_init__(self) -> None:
        check_number("penalty", self.penalty, least=0, example=0.5)
        check_above_0("floor", self.floor, example=0.05)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        elites = list(population)
        if len(elites) > WINDOW:
            elites = rng.sample(elites, WINDOW)
        visits, children = population.visits, population.children
        weights = []
        for elite in elites:
            told = visits(elite.program).told
            kept = min(len(children(elite.program)), told) if told else 0
            weights.append(max(1.0 + kept - self.penalty * (told - kept), self.floor))
        return tuple(elites[index] for index in weighted(weights, count, rng))


def _middle(ordered: list[float]) -> float:
    """The median of sorted values; 0 of none."""
    half = len(ordered) // 2
    return (ordered[half] + ordered[~half]) / 2 if ordered else 0.0
