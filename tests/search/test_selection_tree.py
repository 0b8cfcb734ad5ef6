"""Policies that look at lineage and islands.

Invariants:
1. Every policy holds to `SelectionConformance`.
2. UCT descends by its bounds, branches where the expand arm is higher and open, avoids dead ends.
3. PUCT takes the highest score of all, by the formula of TTT-Discover.
4. Islands take turns, or are chosen by what they gained of late.
"""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.protocols import Visits
from evolve.search.selection import AdaptiveIslands, Greedy, IslandRoundRobin, Polca, Puct, Uct
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation
from evolve.testing.selection import SelectionConformance


class TestUct(SelectionConformance):
    def make(self):
        return Uct()


class TestUctByTheMean(SelectionConformance):
    def make(self):
        return Uct(max_share=0.3, dead_failures=1, dead_stale=1)


class TestPuct(SelectionConformance):
    def make(self):
        return Puct()


class TestIslandRoundRobin(SelectionConformance):
    def make(self):
        return IslandRoundRobin()


class TestIslandRoundRobinOfTrees(SelectionConformance):
    def make(self):
        return IslandRoundRobin(within=Uct())


class TestAdaptiveIslands(SelectionConformance):
    def make(self):
        return AdaptiveIslands()


def child(program: str, parent: str, value: float, sequence: int):
    """An elite of this log speedup."""
    elite = make_elite(program, speedup=math.exp(value), sequence=sequence)
    return replace(elite, parents=(parent,))


def grown(visits, *, extra=()) -> MemoryPopulation:
    """A root of value 0 with a slow child (-1) and a fast one (1), which has one of 0.5."""
    elites = [
        make_elite("root"),
        child("slow", "root", -1.0, 1),
        child("fast", "root", 1.0, 2),
        child("below", "fast", 0.5, 3),
        *extra,
    ]
    return MemoryPopulation(elites, visits=visits)


def main(policy, population) -> str:
    return policy.select(population, 1, random.Random(0))[0].program


SEEN = {
    "root": Visits(asked=2, told=2, subtree=3, scored=3, value=0.5, best=1.0),
    "fast": Visits(asked=1, told=1, subtree=1, scored=1, value=0.5, best=0.5),
}


def test_uct_expands_a_program_without_children():
    assert main(Uct(), MemoryPopulation([make_elite("only")])) == "only"


def test_uct_without_exploration_follows_the_best_to_where_it_may_branch():
    narrow = Uct(exploration=0, power=0, widening=1)  # one expansion of each
    assert main(narrow, grown(SEEN)) == "below"


def test_uct_with_much_exploration_visits_the_slower_child():
    assert main(Uct(exploration=5, power=0, widening=1), grown(SEEN)) == "slow"


def test_uct_branches_where_the_expand_arm_is_higher_and_widening_lets_it():
    # At the root: N = 4, a = 2. fast: 1 + c sqrt(ln 4 / 2), expand: 1 + c sqrt(ln 4) / 2.
    visits = SEEN | {"root": Visits(asked=1, told=1, subtree=3, scored=3, best=1.0)}
    assert main(Uct(exploration=0.1, power=1), grown(SEEN)) != "root"
    assert main(Uct(exploration=0.1, power=1), grown(visits)) == "root"
    assert main(Uct(exploration=0.1, power=0, widening=1), grown(visits)) != "root"


def test_tickets_under_way_make_uct_go_elsewhere():
    twins = [child(f"twin{number}", "root", 1.0, number) for number in (4, 5)]
    busy = SEEN | {"twin4": Visits(asked=6, pending=6)}
    policy = Uct(exploration=1, power=0, widening=1)
    population = MemoryPopulation([make_elite("root"), *twins], visits=SEEN)
    assert main(policy, population) == "twin4"
    population = MemoryPopulation([make_elite("root"), *twins], visits=busy)
    assert main(policy, population) == "twin5"


@pytest.mark.parametrize(
    "dead",
    [
        Visits(asked=4, told=4, failed=4, subtree=4, stale=4),
        Visits(asked=9, told=9, failed=2, subtree=90, scored=60, value=20, best=0.9, stale=80),
    ],
)
def test_uct_does_not_enter_a_dead_end_as_long_as_there_is_another_way(dead):
    policy = Uct(exploration=0, power=0, widening=1)
    dim = child("dim", "fast", 0.2, 4)
    assert main(policy, grown(SEEN, extra=[dim])) == "below"
    assert main(policy, grown(SEEN | {"below": dead}, extra=[dim])) == "dim"
    both = SEEN | {"below": dead, "dim": dead}
    assert main(policy, grown(both, extra=[dim])) == "fast"  # nothing is left but to branch


def test_the_leader_and_what_leads_to_it_are_no_dead_end():
    stale = Visits(asked=90, told=90, subtree=90, scored=9, value=9, best=1.0, stale=89)
    narrow = Uct(exploration=0, power=0, widening=1)
    assert main(narrow, grown(SEEN | {"fast": stale})) == "below"
    lead = child("lead", "slow", 2.0, 4)
    # Measured again, it became better than when it was counted.
    above = replace(stale, best=1.9)
    assert main(narrow, grown(SEEN | {"slow": above}, extra=[lead])) == "lead"


def test_the_mean_of_a_subtree_counts_failures_as_nothing():
    # Of equal best, one child's tickets were worth something, and the other's were not.
    good = Visits(asked=4, told=4, subtree=4, scored=4, value=4.0, best=1.0)
    poor = Visits(asked=4, told=4, failed=3, subtree=4, scored=1, value=1.0, best=1.0)
    elites = [make_elite("root"), child("poor", "root", 1.0, 1), child("good", "root", 1.0, 2)]
    seen = {"root": Visits(asked=2, told=2, subtree=10, scored=7, best=1.0)}
    population = MemoryPopulation(elites, visits=seen | {"good": good, "poor": poor})
    narrow = {"exploration": 0, "power": 0, "widening": 1}
    assert main(Uct(max_share=0, **narrow), population) == "good"
    assert main(Uct(max_share=1, **narrow), population) == "poor"  # the older of equals


def test_tickets_of_a_grandchild_under_way_count_on_the_whole_way_down():
    twins = [child(f"twin{number}", "root", 1.0, number) for number in (4, 5)]
    below = child("below4", "twin4", 0.5, 6)
    held = [make_elite("root"), *twins, below]
    policy = Uct(exploration=1, power=0, widening=1)
    seen = SEEN | {"twin4": Visits(asked=1, told=1, subtree=1, best=1.0)}
    level = seen | {"twin5": Visits(asked=1, told=1, subtree=1, best=1.0)}
    assert main(policy, MemoryPopulation(held, visits=level)).endswith("4")
    level["twin4"] = Visits(asked=1, told=1, subtree=1, best=1.0, pending=5)
    assert main(policy, MemoryPopulation(held, visits=level)) == "twin5"


def test_puct_is_the_formula_of_ttt_discover():
    visits = {
        "root": Visits(asked=9, told=9, subtree=9, scored=5, value=1.0, best=1.0),
        "fast": Visits(asked=3, told=2, subtree=2, scored=1, best=0.5, pending=1),
    }
    population = grown(visits)
    population = MemoryPopulation(list(population), visits=visits, turn=8)
    # Ranks: fast, below, root, slow; priors 0.4, 0.3, 0.2, 0.1; scale 2; sqrt(1 + T) = 3.
    scores = {
        "fast": 0.5 + 6 * 0.4 / 4,
        "below": 0.5 + 6 * 0.3 / 1,
        "root": 1.0 + 6 * 0.2 / 10,
        "slow": -1.0 + 6 * 0.1 / 1,
    }
    order = sorted(scores, key=lambda program: -scores[program])
    chosen = Puct(exploration=1).select(population, 4, random.Random(0))
    assert [elite.program for elite in chosen] == order
    assert main(Puct(exploration=0), population) == "root"


def archipelago(turn: int = 0, visits=None) -> MemoryPopulation:
    """Three islands of four; `still` has been level of late, `rising` has gained."""
    elites, slots = [], {}
    for place, island in enumerate(("rising", "small", "still")):
        for number in range(1 if island == "small" else 8):
            value = {"rising": 0.1 * number, "small": 0.0, "still": 0.7 if number else 0.0}[island]
            program = f"{island}{number}"
            elites.append(make_elite(program, speedup=math.exp(value), sequence=3 * number + place))
            slots[program] = f"{island}/{number}"
    return MemoryPopulation(elites, slots=slots, turn=turn, visits=visits)


def test_islands_take_turns():
    mains = [main(IslandRoundRobin(within=Greedy()), archipelago(turn)) for turn in range(4)]
    assert mains == ["rising7", "small0", "still1", "rising7"]


def test_a_policy_within_islands_sees_the_turns_of_its_island():
    policy = IslandRoundRobin(within=Polca(candidates=2))
    mains = [main(policy, archipelago(turn)) for turn in (0, 3, 6)]
    assert mains == ["rising7", "rising6", "rising7"]


@pytest.mark.parametrize("policy", [IslandRoundRobin(within=Greedy()), AdaptiveIslands()])
def test_all_parents_are_of_one_island_which_may_have_too_few(policy):
    population = archipelago(1, visits=asked(rising=20, still=20, small=2))
    chosen = policy.select(population, 3, random.Random(0))
    assert [elite.program for elite in chosen] == ["small0"]


def asked(**counts: int) -> dict[str, Visits]:
    return {f"{name}0": Visits(asked=n, told=n, subtree=n) for name, n in counts.items()}


def test_an_island_that_was_hardly_asked_goes_first():
    population = archipelago(visits=asked(rising=20, still=20, small=2))
    assert main(AdaptiveIslands(), population) == "small0"


def test_tickets_of_a_migrant_are_shared_between_its_islands():
    class Shared(MemoryPopulation):
        @property
        def islands(self):
            both, own = self.elite("both"), self.elite("own")
            return {"here": [both], "there": [own, both]}

    elites = [make_elite("both", speedup=1.0), make_elite("own", speedup=1.5, sequence=9)]
    visits = {name: Visits(asked=4, told=4, subtree=4) for name in ("both", "own")}
    policy = AdaptiveIslands(exploration=0, least_visits=3)
    assert main(policy, Shared(elites, visits=visits)) == "both"


def test_an_island_that_gained_of_late_is_preferred():
    visits = asked(rising=20, still=20, small=20)
    population = archipelago(visits=visits)
    islands = Counter(
        AdaptiveIslands(exploration=0).select(population, 1, random.Random(seed))[0].program[:5]
        for seed in range(50)
    )
    assert islands == {"risin": 50}


def test_an_island_that_was_asked_seldom_has_its_turn_the_more_exploration_there_is():
    told = asked(rising=20, still=20, small=20)
    often = {name: replace(visits, asked=1000) for name, visits in told.items()}
    population = archipelago(visits=often | {"still0": told["still0"]})
    chosen = {
        exploration: main(AdaptiveIslands(exploration=exploration), population)[:5]
        for exploration in (0.0, 0.01, 1.41)
    }
    assert chosen == {0.0: "risin", 0.01: "risin", 1.41: "still"}


def test_a_migrant_is_a_gain_of_the_island_that_made_it():
    """SkyDiscover's `receive_external_improvement`: it never counts for who is next."""
    slots = {"a": "0/a", "made": "0/made", "b": "1/b", "c": "1/c"}
    elites = [
        make_elite("a", speedup=1.0, sequence=1),
        make_elite("b", speedup=1.1, sequence=2),
        make_elite("c", speedup=1.2, sequence=3),
        replace(make_elite("made", speedup=1.5, sequence=4), parents=("a",)),
    ]

    class Migrated(MemoryPopulation):
        @property
        def islands(self):
            home, away = (
                [elite for elite in self if slots[elite.program][0] == number] for number in "01"
            )
            return {"0": home, "1": [self.elite("made"), *away]}

    visits = {elite.program: Visits(asked=4, told=4, subtree=4) for elite in elites}
    population = Migrated(elites, visits=visits, slots=slots)
    mains = {
        AdaptiveIslands(exploration=0).select(population, 2, random.Random(seed))[1].program
        for seed in range(20)
    }
    assert mains == {"a", "made"}


def test_an_island_is_explored_the_less_the_larger_its_gains_were():
    """By hand, decay 0.5: G of seven gains of 0.1 is 0.0099, of one of 0.7 it stays 0.245."""

    def explored(island: str) -> float:
        elites = [elite for elite in archipelago() if elite.program.startswith(island)]
        alone = MemoryPopulation(elites, visits=asked(**{island: 16}))
        best = {elite.program for elite in list(alone)[:2]}
        policy = AdaptiveIslands(intensity_low=0, intensity_high=1, decay=0.5)
        mains = [policy.select(alone, 1, random.Random(seed))[0].program for seed in range(2000)]
        return sum(program not in best for program in mains) / 2000

    # Any elite with I = 1 / (1 + sqrt(G)): 0.910 and 0.669, of which six of eight are others.
    assert explored("rising") > explored("still")


@pytest.mark.parametrize(
    ("policy", "name", "values"),
    [
        (Uct, "exploration", [-1, None]),
        (Uct, "max_share", [-0.1, 1.1]),
        (Uct, "widening", [0, -1]),
        (Uct, "power", [-0.1, 1.1]),
        (Uct, "dead_failures", [0, 1.5]),
        (Uct, "dead_stale", [0]),
        (Puct, "exploration", [-1, math.inf]),
        (AdaptiveIslands, "exploration", [-1]),
        (AdaptiveIslands, "decay", [-0.1, 1.0]),
        (AdaptiveIslands, "intensity_low", [-0.1, 1.1, 0.8]),
        (AdaptiveIslands, "intensity_high", [-0.1, 1.1]),
        (AdaptiveIslands, "least_visits", [-1, 0.5]),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(policy, name, values):
    for value in values:
        with pytest.raises(UsageError, match=rf"selection\.{name} .*(set|lower)"):
            policy(**{name: value})
