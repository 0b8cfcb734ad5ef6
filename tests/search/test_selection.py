"""Selection policies hold to `SelectionConformance`, and each to its own rule."""

import random
from collections import Counter

import pytest

from evolve.core.errors import UsageError
from evolve.search.selection import EpsilonGreedy, Greedy, Tournament
from evolve.testing.parts import make_elite
from evolve.testing.selection import SelectionConformance

LINE = [make_elite(f"p{number}", speedup=1 + number, sequence=number) for number in range(10)]


class TestGreedy(SelectionConformance):
    def make(self):
        return Greedy()


class TestTournament(SelectionConformance):
    def make(self):
        return Tournament()


class TestEpsilonGreedy(SelectionConformance):
    def make(self):
        return EpsilonGreedy(epsilon=0.5)


def first_choices(policy, draws: int = 2000) -> Counter:
    return Counter(policy.select(LINE, 1, random.Random(seed))[0].program for seed in range(draws))


def test_greedy_takes_the_best_in_order():
    chosen = Greedy().select(LINE, 3, random.Random(0))
    assert [parent.program for parent in chosen] == ["p9", "p8", "p7"]


def test_the_earlier_of_two_equals_is_better():
    twins = [make_elite("late", sequence=5), make_elite("early", sequence=2)]
    for policy in (Greedy(), Tournament(size=2), EpsilonGreedy(epsilon=0)):
        assert policy.select(twins, 1, random.Random(0))[0].program == "early"


def test_a_tournament_of_one_is_uniform_and_of_all_is_greedy():
    assert min(first_choices(Tournament(size=1)).values()) > 140
    assert first_choices(Tournament(size=10)) == {"p9": 2000}


def test_a_larger_tournament_presses_harder():
    shares = [first_choices(Tournament(size=size))["p9"] / 2000 for size in (1, 2, 5)]
    assert shares == sorted(shares)
    assert shares[2] == pytest.approx(0.5, abs=0.05)  # the best is among five of ten


def test_epsilon_is_the_share_of_other_choices():
    assert first_choices(EpsilonGreedy(epsilon=0)) == {"p9": 2000}
    assert first_choices(EpsilonGreedy(epsilon=0.3))["p9"] / 2000 == pytest.approx(0.7, abs=0.04)
    assert first_choices(EpsilonGreedy(epsilon=1))["p9"] == 0


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4"])
def test_a_wrong_tournament_size_is_refused_by_name(size):
    with pytest.raises(UsageError, match=r"selection\.size"):
        Tournament(size=size)


@pytest.mark.parametrize("epsilon", [-0.1, 1.1, True, "0.3", float("nan")])
def test_a_wrong_epsilon_is_refused_by_name(epsilon):
    with pytest.raises(UsageError, match=r"selection\.epsilon"):
        EpsilonGreedy(epsilon=epsilon)
