"""Policies that look at speeds and counts.

Invariants:
1. Every policy holds to `SelectionConformance`.
2. Each draws with the probabilities, or in the order, that its source gives.
3. A value out of range is refused by name, with one that is in range.
"""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from evolve.app import components
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval
from evolve.core.protocols import Visits
from evolve.search.selection import (
    Beam,
    Boltzmann,
    Curiosity,
    EpsilonGreedy,
    ExploreExploit,
    Greedy,
    Polca,
    PowerLaw,
    Rank,
    Thompson,
    Tournament,
    WeightedSigmoid,
)
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation
from evolve.testing.selection import SelectionConformance
from tests.cli.recording import settings

ELITES = [make_elite(f"p{number}", speedup=1 + number, sequence=number) for number in range(10)]
LINE = MemoryPopulation(ELITES)


class TestGreedy(SelectionConformance):
    def make(self):
        return Greedy()


class TestBeam(SelectionConformance):
    def make(self):
        return Beam(width=3)


class TestEpsilonGreedy(SelectionConformance):
    def make(self):
        return EpsilonGreedy(epsilon=0.5)


class TestExploreExploit(SelectionConformance):
    def make(self):
        return ExploreExploit(exploration=0.3, exploitation=0.3)


class TestTournament(SelectionConformance):
    def make(self):
        return Tournament()


class TestRank(SelectionConformance):
    def make(self):
        return Rank()


class TestPowerLaw(SelectionConformance):
    def make(self):
        return PowerLaw()


class TestBoltzmann(SelectionConformance):
    def make(self):
        return Boltzmann(temperature=1e-4)


class TestWeightedSigmoid(SelectionConformance):
    def make(self):
        return WeightedSigmoid()


class TestCuriosity(SelectionConformance):
    def make(self):
        return Curiosity()


class TestPolcaMean(SelectionConformance):
    def make(self):
        return Polca(candidates=4)


class TestPolcaUcb(SelectionConformance):
    def make(self):
        return Polca(candidates=4, proposals=2, priority="ucb")


class TestThompson(SelectionConformance):
    def make(self):
        return Thompson()


def shares(policy, population=LINE, draws: int = 4000) -> dict[str, float]:
    """How often each program is the main parent."""
    chosen = Counter(
        policy.select(population, 1, random.Random(seed))[0].program for seed in range(draws)
    )
    return {elite.program: chosen[elite.program] / draws for elite in population}


def programs(chosen) -> list[str]:
    return [parent.program for parent in chosen]


def in_proportion(weights) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def test_greedy_takes_the_best_in_order():
    assert programs(Greedy().select(LINE, 3, random.Random(0))) == ["p9", "p8", "p7"]


def test_the_earlier_of_two_equals_is_better():
    twins = MemoryPopulation([make_elite("late", sequence=5), make_elite("early", sequence=2)])
    for policy in (Greedy(), Beam(), Tournament(size=2), EpsilonGreedy(epsilon=0)):
        assert programs(policy.select(twins, 1, random.Random(0))) == ["early"]


def test_a_beam_expands_what_was_asked_least_and_nothing_below_it():
    asked = {"p9": 3, "p8": 1, "p7": 2, "p6": 0}
    visits = {program: Visits(asked=count) for program, count in asked.items()}
    population = MemoryPopulation(ELITES, visits=visits)
    chosen = Beam(width=3).select(population, 3, random.Random(0))
    assert programs(chosen) == ["p8", "p7", "p9"]


def test_a_tournament_of_one_is_uniform_and_of_all_is_greedy():
    assert min(shares(Tournament(size=1)).values()) > 0.07
    assert shares(Tournament(size=10))["p9"] == 1


def test_a_larger_tournament_presses_harder():
    best = [shares(Tournament(size=size))["p9"] for size in (1, 2, 5)]
    assert best == sorted(best)
    assert best[2] == pytest.approx(0.5, abs=0.04)  # the best is among five of ten


def test_epsilon_is_the_share_of_other_choices():
    assert shares(EpsilonGreedy(epsilon=0))["p9"] == 1
    assert shares(EpsilonGreedy(epsilon=0.3))["p9"] == pytest.approx(0.7, abs=0.03)
    assert shares(EpsilonGreedy(epsilon=1))["p9"] == 0


def test_linear_ranking_draws_the_best_by_its_pressure_and_the_worst_by_what_is_left():
    found = shares(Rank(pressure=1.7), draws=8000)
    expected = [(1.7 - 1.4 * place / 9) / 10 for place in range(10)]  # Baker 1985
    assert list(found.values()) == pytest.approx(expected, abs=0.015)
    assert shares(Rank(pressure=2))["p0"] == 0


def test_a_power_law_falls_with_the_rank():
    expected = in_proportion([rank**-2.0 for rank in range(1, 11)])
    assert list(shares(PowerLaw(alpha=2)).values()) == pytest.approx(expected, abs=0.025)
    assert list(shares(PowerLaw(alpha=0)).values()) == pytest.approx([0.1] * 10, abs=0.025)


def test_boltzmann_at_temperature_one_draws_in_proportion_to_speedup():
    expected = in_proportion(range(10, 0, -1))
    assert list(shares(Boltzmann(temperature=1)).values()) == pytest.approx(expected, abs=0.025)


def test_boltzmann_near_zero_is_greedy():
    assert shares(Boltzmann(temperature=1e-6))["p9"] == 1


def test_explore_exploit_keeps_its_three_shares():
    found = shares(ExploreExploit(exploration=0.2, exploitation=0.7, top=2), draws=8000)
    by_speedup = in_proportion(range(10, 0, -1))
    expected = [
        0.02 + 0.1 * share + (0.35 if place < 2 else 0) for place, share in enumerate(by_speedup)
    ]
    assert list(found.values()) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("preset", ["openevolve", "kernel_smith"])
def test_openevolve_exploits_any_program_of_an_island_at_the_presets_own_budget(preset):
    """Of four elites the best was drawn in 77 of 100 cases."""
    policy = components.build_selection(settings(f"search={preset}"))
    elites = [make_elite(f"p{n}", speedup=1 + n, sequence=n) for n in range(4)]
    population = MemoryPopulation(elites, slots={f"p{n}": f"0/{n}" for n in range(4)})
    rng = random.Random(0)
    drawn = Counter(policy.select(population, 1, rng)[0].program for _ in range(8000))
    # (0.2 + 0.7) / 4, and the rest in proportion to speedup: 0.1 * (1 + n) / 10
    expected = [0.225 + 0.01 * (1 + n) for n in range(4)]
    assert [drawn[f"p{n}"] / 8000 for n in range(4)] == pytest.approx(expected, abs=0.02)


def test_a_weighted_sigmoid_is_that_of_shinka():
    visits = {"p9": Visits(asked=4), "p5": Visits(asked=1, told=1)}
    values = [math.log(number) for number in range(10, 0, -1)]
    median = (values[4] + values[5]) / 2
    deviations = sorted(abs(value - median) for value in values)
    scale = (deviations[4] + deviations[5]) / 2
    weights = [1 / (1 + math.exp(-2 * (value - median) / scale)) for value in values]
    weights[0] /= 5
    weights[4] /= 2
    found = shares(WeightedSigmoid(sharpness=2), MemoryPopulation(ELITES, visits=visits))
    assert list(found.values()) == pytest.approx(in_proportion(weights), abs=0.025)


def test_curiosity_returns_to_what_bore_children_that_were_kept():
    kept = [replace(make_elite(f"child-{n}", sequence=20 + n), parents=("p3",)) for n in range(3)]
    visits = {
        "p3": Visits(asked=4, told=4),  # three of four are held: 1 + 3 - 0.5
        "p4": Visits(asked=9, told=9),  # none of nine: the floor
    }
    found = shares(Curiosity(floor=0.1), MemoryPopulation(ELITES + kept, visits=visits))
    total = 3.5 + 0.1 + 11 * 1
    assert found["p3"] == pytest.approx(3.5 / total, abs=0.025)
    assert found["p4"] == pytest.approx(0.1 / total, abs=0.01)
    assert found["p9"] == pytest.approx(1 / total, abs=0.02)


def test_polca_stays_with_a_candidate_for_its_proposals():
    policy = Polca(candidates=3, proposals=2)
    mains = [
        policy.select(MemoryPopulation(ELITES, turn=turn), 1, random.Random(0))[0].program
        for turn in range(12)
    ]
    assert mains[::2] == mains[1::2]
    assert set(mains) == {"p9", "p8", "p7"}


@pytest.mark.parametrize("candidates", [2, 4, 5, 10])
@pytest.mark.parametrize("every", [1, 2, 5, 10])
def test_polca_takes_all_of_the_head_alike_whatever_else_takes_tickets(candidates: int, every: int):
    """`remeasure` may have every second ticket, or some other method all but every tenth."""
    turns = range(0, 40 * every, every)
    policy = Polca(candidates=candidates)
    mains = Counter(
        policy.select(MemoryPopulation(ELITES, turn=turn), 1, random.Random(0))[0].program
        for turn in turns
    )
    assert len(mains) == candidates
    assert max(mains.values()) - min(mains.values()) <= 4


def test_polca_prefers_the_newest_of_equals():
    twins = MemoryPopulation([make_elite(f"t{number}", sequence=number) for number in range(4)])
    assert programs(Polca(candidates=1).select(twins, 1, random.Random(0))) == ["t3"]


def test_polca_ucb_prefers_what_was_measured_seldom():
    often = replace(make_elite("often", speedup=1.1, sequence=1), evaluations=9)
    seldom = replace(make_elite("seldom", speedup=1.05, sequence=2), evaluations=1)
    population = MemoryPopulation([often, seldom], turn=50)
    assert programs(Polca(candidates=1).select(population, 1, random.Random(0))) == ["often"]
    ucb = Polca(candidates=1, priority="ucb")
    assert programs(ucb.select(population, 1, random.Random(0))) == ["seldom"]
    known = MemoryPopulation([often, replace(seldom, evaluations=9)], turn=50)
    assert programs(ucb.select(known, 1, random.Random(0))) == ["often"]


def spread(program: str, value: float, half: float, sequence: int = 0):
    interval = Interval(value, value - half, value + half)
    return replace(make_elite(program, sequence=sequence), fitness=interval)


def test_thompson_chooses_by_the_probability_of_being_the_best():
    pair = MemoryPopulation([spread("a", 0.10, 0.098), spread("b", 0.05, 0.098, 1)])
    # A difference of 0.05 with a deviation of sqrt(2) * 0.05: the normal law gives 0.76.
    assert shares(Thompson(), pair)["a"] == pytest.approx(0.76, abs=0.025)


def test_thompson_never_chooses_what_is_worse_beyond_doubt():
    sure = MemoryPopulation([spread("a", 1.0, 0.02), spread("b", 0.5, 0.02, 1)])
    assert shares(Thompson(), sure)["a"] == 1
    # Twenty times the spread: 0.5 with a deviation of sqrt(2) * 0.204, that is 4.2 %.
    assert shares(Thompson(widening=20), sure)["b"] == pytest.approx(0.042, abs=0.01)


def test_parents_after_the_first_are_drawn_as_if_those_before_were_not_there():
    second = Counter(
        Rank(pressure=2).select(LINE, 10, random.Random(seed))[-1].program for seed in range(500)
    )
    assert second.most_common(1)[0][0] == "p0"


@pytest.mark.parametrize(
    ("policy", "name", "values"),
    [
        (Beam, "width", [0, -1, 1.5, True, "4"]),
        (Tournament, "size", [0, -1, 1.5, True, "4"]),
        (EpsilonGreedy, "epsilon", [-0.1, 1.1, True, "0.3", math.nan]),
        (ExploreExploit, "exploration", [-0.1, 1.1, None]),
        (ExploreExploit, "exploitation", [-0.1, 1.1, None]),
        (ExploreExploit, "top", [0, 1.5, None]),
        (Rank, "pressure", [0.9, 2.1, "2"]),
        (PowerLaw, "alpha", [-1, math.inf, math.nan]),
        (Boltzmann, "temperature", [0, -1, math.inf]),
        (WeightedSigmoid, "sharpness", [-1, math.nan]),
        (Curiosity, "penalty", [-1]),
        (Curiosity, "floor", [0, -1]),
        (Polca, "candidates", [0, 1.5]),
        (Polca, "proposals", [0]),
        (Polca, "exploration", [-1]),
        (Polca, "noise", [-1]),
        (Polca, "priority", ["median", None]),
        (Thompson, "widening", [-1]),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(policy, name, values):
    for value in values:
        with pytest.raises(UsageError, match=rf"selection\.{name} .*(set|choose)"):
            policy(**{name: value})


def test_shares_that_add_up_to_more_than_one_are_refused():
    with pytest.raises(UsageError, match="together more than 1"):
        ExploreExploit(exploration=0.6, exploitation=0.5)
