"""What policies chose when they were written: a change that nobody meant shows here.

The population is written down by formulas: no generator but that of the policy has a say.
"""

import math
import random
from dataclasses import replace

import pytest

from evolve.core.measurement import Interval
from evolve.core.protocols import SelectionPolicy, Visits
from evolve.search import selection
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation

GOLDEN: dict[str, list[int]] = {
    "AdaptiveIslands": [13, 7, 31, 7, 34, 13, 7, 4, 34, 31],
    "Beam": [20, 26, 20, 26, 20, 26, 20, 26, 20, 26],
    "Boltzmann": [39, 33, 39, 33, 27, 39, 39, 27, 33, 39],
    "Curiosity": [37, 2, 28, 37, 5, 34, 0, 18, 17, 38],
    "EpsilonGreedy": [39, 9, 10, 39, 39, 18, 39, 33, 39, 4],
    "ExploreExploit": [9, 7, 23, 7, 39, 30, 2, 30, 33, 30],
    "Greedy": [39, 33, 39, 33, 39, 33, 39, 33, 39, 33],
    "IslandRoundRobin": [14, 26, 27, 15, 34, 28, 14, 2, 27, 15],
    "Polca": [38, 39, 34, 21, 33, 27, 32, 14, 20, 26],
    "PowerLaw": [26, 33, 33, 34, 17, 39, 32, 16, 0, 39],
    "Puct": [20, 26, 20, 26, 20, 26, 20, 26, 20, 26],
    "Rank": [9, 7, 23, 1, 20, 10, 2, 30, 14, 25],
    "Thompson": [39, 33, 39, 33, 39, 33, 39, 33, 39, 33],
    "Tournament": [7, 34, 8, 7, 20, 27, 2, 3, 14, 7],
    "Uct": [2, 39, 2, 39, 2, 39, 2, 39, 2, 39],
    "WeightedSigmoid": [8, 32, 21, 15, 35, 20, 2, 19, 22, 26],
}


def population(turn: int) -> MemoryPopulation:
    """Forty programs on three islands, a binary tree; every third was a parent."""
    elites, visits = [], {}
    for number in range(40):
        value = math.sin(number) + number / 40
        elite = replace(
            make_elite(str(number), sequence=number),
            fitness=Interval(value, value - 0.05, value + 0.05 * (1 + number % 4)),
            parents=(str((number - 1) // 2),) if number else (),
            evaluations=1 + number % 3,
        )
        elites.append(elite)
        if number % 3 == 0:
            told = 1 + number % 5
            visits[str(number)] = Visits(
                asked=told + number % 2,
                told=told,
                pending=number % 2,
                failed=number % 2,
                subtree=told + (40 - number) // 4,
                scored=told,
                value=told * value,
                best=value + math.cos(number) / 4,
                stale=number,
            )
    slots = {str(number): f"{number % 3}/{number}" for number in range(40)}
    return MemoryPopulation(elites, visits=visits, slots=slots, turn=turn)


def chosen(policy: SelectionPolicy) -> list[int]:
    """Two parents on each of five turns, by number."""
    return [
        int(parent.program)
        for turn in range(50, 55)
        for parent in policy.select(population(turn), 2, random.Random(turn))
    ]


@pytest.mark.parametrize("name", selection.__all__)
def test_a_policy_chooses_what_it_chose(name):
    assert chosen(getattr(selection, name)()) == GOLDEN[name]
