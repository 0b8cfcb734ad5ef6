"""Whole searches on landscapes with a planted optimum: the real engine, a database, no device.

Invariants:
1. Each landscape is hard in the way that its name says, without any search method.
2. The same run takes the same steps; cheats and wrong programs are never held.
3. Methods do what they are known for. `bench_landscapes` has more seeds and every method.
"""

import math
import random
import statistics

import pytest

from archives import Islands, Priority, TopK, Tree
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.search.methods import Method
from evolve.search.schedule import Bandit, Scheduled
from evolve.search.selection import (
    Beam,
    Greedy,
    IslandRoundRobin,
    Polca,
    Thompson,
    Tournament,
    Uct,
)
from evolve.testing.landscapes import PEAK, Point, family, point_of
from evolve.testing.landscapes_parts import Mutate
from operators import Remeasure
from tests.search.climbing import climbed, progress

NAMES = ["deceptive", "multi_modal", "noisy", "plateau", "needle"]


def remeasure(**settings) -> dict[str, Scheduled]:
    return {"remeasure": Scheduled(operator=Remeasure(**settings), weight=math.inf)}


def moved(landscape, point: Point, rng: random.Random) -> Point:
    """What an honest proposal makes of a point."""
    return Mutate(landscape=landscape)._moved(point, rng)


@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_scores_one_and_nothing_scores_more(name):
    landscape = family(3)[name]
    rng = random.Random(name)
    optima = [
        Point(number, structure.optimum).source()
        for number, structure in enumerate(landscape.structures)
    ]
    assert max(landscape.progress(source) for source in optima) == 1
    assert landscape.progress(landscape.start.source()) == 0
    for _ in range(300):
        knobs = tuple(rng.randrange(16) for _ in range(4))
        structure = rng.randrange(len(landscape.structures))
        assert landscape.score(Point(structure, knobs).source()) <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_seed_places_the_optima_and_the_text_is_the_point(name):
    assert family(3)[name] == family(3)[name] != family(4)[name]
    assert point_of(Point(2, (0, 15, 3, 8)).source()) == Point(2, (0, 15, 3, 8))


def score(landscape, point: Point) -> float:
    return landscape.score(point.source())


def test_on_the_deceptive_one_another_structure_is_a_loss_all_along_the_way_up():
    rng = random.Random(1)
    gains = tried = 0
    for seed in range(20):
        landscape = family(seed)["deceptive"]
        point = landscape.start
        for _ in range(60):
            child = moved(landscape, point, rng)
            if child.structure == 1:
                tried += 1
                gains += score(landscape, child) > score(landscape, point)
            elif score(landscape, child) > score(landscape, point):
                point = child
        across = [Point(1, landscape.structures[0].optimum)]
        assert score(landscape, across[0]) < 0.6 < score(landscape, landscape_top(landscape))
    assert tried > 50
    assert gains <= tried / 20


def landscape_top(landscape) -> Point:
    return Point(1, landscape.structures[1].optimum)


def test_on_the_plateau_most_changes_make_no_difference_and_none_on_the_way_to_the_needle_does():
    rng = random.Random(2)
    level = []
    for name in ("plateau", "needle"):
        landscape = family(5)[name]
        children = [moved(landscape, landscape.start, rng) for _ in range(200)]
        start = score(landscape, landscape.start)
        level.append(sum(score(landscape, child) == start for child in children) / 200)
    assert level[0] > 0.4
    assert level[1] == 1


@pytest.mark.parametrize(
    ("policy", "leaders"),
    [
        (Tournament(), {}),
        (Uct(), {}),
    ],
)
def test_the_same_seed_takes_the_same_steps(store, policy, leaders):
    landscape = family(1)["multi_modal"]
    runs = [climbed(store, landscape, policy, seed=9, evaluations=40) for _ in range(2)]
    first, second = (list(store.steps(search.run.id)) for search in runs)
    assert [step.program for step in first] == [step.program for step in second]
    assert runs[0].leader.program == runs[1].leader.program


def test_cheats_and_wrong_programs_are_facts_and_never_held(store):
    search = climbed(store, family(1)["deceptive"], Greedy(), seed=2, evaluations=80)
    statuses = {step.status for step in store.steps(search.run.id)}
    assert {"hack", "wrong_value", "correct"} <= statuses
    for elite in search.archive.slots().values():
        assert not {"CHEAT", "WRONG"} & set(store.source(elite.program).split())


def test_polca_recovers_an_unlucky_good_candidate_and_rejects_duplicates(store):
    landscape = family(1)["noisy"]
    good = Point(0, landscape.structures[0].optimum).source()
    search = climbed(
        store,
        landscape,
        Polca(candidates=3),
        seed=4,
        evaluations=12,
        archive=Priority(capacity=30, priority="ucb"),
        others=remeasure(share=0.3),
        unlucky={good: -PEAK},
    )
    ticket = search.offer(good)
    assert ticket.proposal == Proposal(program=Program(good))
