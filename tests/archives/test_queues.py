"""Bounded archives: who gives way.

Invariants:
1. Priority: the lowest priority goes, by pooled mean, upper bound or age; never the best program.
2. Tree: leaves go before what has children, so that every path of held programs is whole.
3. Pareto: a program that nobody beats goes only when all that are held are such.
"""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archives import Pareto, Priority, Tree
from evolve.core.errors import UsageError
from evolve.testing.parts import make_elite


def programs(archive) -> set[str]:
    return {elite.program for elite in archive.slots().values()}


def measured(program: str, value: float, evaluations: int, sequence: int = 0):
    elite = make_elite(program, speedup=math.exp(value), sequence=sequence)
    return replace(elite, evaluations=evaluations)


# --- priority -----------------------------------------------------------------------------------


def test_an_unlucky_program_outlives_one_that_was_measured_often_under_the_upper_bound():
    for priority, kept in (("mean", "often"), ("ucb", "unlucky")):
        archive = Priority(capacity=2, priority=priority, noise=0.2)
        archive.offer(measured("best", 1.0, 5))
        archive.offer(measured("often", 0.5, 9))
        archive.offer(measured("unlucky", 0.45, 1, sequence=1))
        assert programs(archive) == {"best", kept}


def test_a_lucky_program_is_given_up_once_it_is_measured_again():
    archive = Priority(capacity=2)
    archive.offer(measured("good", 0.5, 3))
    archive.offer(measured("lucky", 0.9, 1))
    archive.offer(measured("lucky", 0.1, 4))
    archive.offer(measured("next", 0.3, 1))
    assert programs(archive) == {"good", "next"}


def test_by_time_the_oldest_goes_and_the_best_stays():
    archive = Priority(capacity=3, priority="time")
    for sequence, value in enumerate([0.1, 0.9, 0.2, 0.3, 0.4]):
        archive.offer(measured(f"p{sequence}", value, 1, sequence))
    assert programs(archive) == {"p1", "p3", "p4"}


@given(
    offers=st.lists(st.tuples(st.integers(0, 9), st.integers(-9, 9), st.integers(1, 4))),
    priority=st.sampled_from(["mean", "ucb", "time"]),
)
def test_nobody_who_is_held_comes_after_who_gave_way(offers, priority):
    """Against the definition: the loser is the last of all in the order of priorities."""
    archive = Priority(capacity=4, priority=priority, noise=0.5)
    for sequence, (number, value, evaluations) in enumerate(offers):
        held = {elite.program: elite for elite in archive.slots().values()}
        newcomer = measured(f"p{number}", value / 4, evaluations, sequence)
        offer = archive.offer(newcomer)
        if len(held) < 4 or newcomer.program in held:
            continue
        everyone = {**held, newcomer.program: newcomer}
        total = sum(elite.evaluations for elite in everyone.values())
        loser = offer.evicted if offer else newcomer.program
        best = min(everyone.values(), key=lambda e: (-e.fitness.value, e.sequence)).program
        others = [bound(e, total, priority) for p, e in everyone.items() if p not in (best, loser)]
        assert loser != best
        assert bound(everyone[loser], total, priority) <= min(others)


def bound(elite, total, priority):
    if priority == "time":
        return elite.sequence
    bonus = 0.5 * math.sqrt(math.log(total + 1) / elite.evaluations)
    return elite.fitness.value + (bonus if priority == "ucb" else 0)


# --- tree ---------------------------------------------------------------------------------------


def node(program: str, parent: str, value: float, sequence: int = 0):
    elite = make_elite(program, speedup=math.exp(value), sequence=sequence)
    return replace(elite, parents=(parent,) if parent else ())


def test_a_slow_step_stays_as_long_as_something_descends_from_it():
    archive = Tree(capacity=4)
    archive.offer(node("root", "", 0.5))
    archive.offer(node("slow", "root", 0.1))
    archive.offer(node("fast", "slow", 0.9))
    archive.offer(node("other", "root", 0.4))
    assert archive.offer(node("new", "fast", 0.6)).evicted == "other"
    assert programs(archive) == {"root", "slow", "fast", "new"}


def test_a_newcomer_does_not_take_the_place_of_its_own_parent():
    archive = Tree(capacity=2)
    archive.offer(node("root", "", 0.5))
    archive.offer(node("step", "root", 0.1))
    assert not archive.offer(node("child", "step", 0.2))
    assert archive.offer(node("best", "step", 0.9)).evicted == "root"


def test_a_line_gives_up_its_worst_program_when_there_is_no_leaf_to_give_up():
    archive = Tree(capacity=5)
    for number in range(12):
        archive.offer(node(f"p{number}", f"p{number - 1}" if number else "", number / 10))
    assert programs(archive) == {f"p{number}" for number in range(7, 12)}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-9, 9)), max_size=80), st.integers(2, 9))
def test_whoever_gives_way_is_a_leaf_unless_no_other_leaf_could(offers, capacity):
    archive = Tree(capacity=capacity)
    for sequence, (number, value) in enumerate(offers):
        before = {elite.program: elite for elite in archive.slots().values()}
        newcomer = node(f"p{number}", f"p{number // 2}" if number else "", value / 4, sequence)
        offer = archive.offer(newcomer)
        if offer.evicted is None:
            continue
        best = min(before.values(), key=lambda e: (-e.fitness.value, e.sequence)).program
        parents = {e.parents[0] for e in (*before.values(), newcomer) if e.parents}
        leaves = before.keys() - parents - {best}
        assert offer.evicted in leaves if leaves else offer.evicted != newcomer.parents[:1]


# --- pareto -------------------------------------------------------------------------------------

GOALS = {"compile_s": "min", "precision_path": ["fp32", "half"]}


def point(program: str, value: float, sequence: int = 0, **descriptors):
    return make_elite(program, speedup=math.exp(value), sequence=sequence, descriptors=descriptors)


def test_a_program_that_is_beaten_in_everything_goes_first():
    archive = Pareto(objectives=GOALS, capacity=3)
    archive.offer(point("fast", 1.0, compile_s=9.0, precision_path="half"))
    archive.offer(point("exact", 0.1, compile_s=2.0, precision_path="fp32"))
    archive.offer(point("beaten", 0.9, compile_s=9.5, precision_path="half"))
    offer = archive.offer(point("quick", 0.05, compile_s=0.5, precision_path="half"))
    assert offer.evicted == "beaten"
    assert not archive.offer(point("worse", 0.05, compile_s=0.6, precision_path="half"))


@pytest.mark.parametrize("end", ["error", "memory_bytes"])
def test_what_is_slower_but_more_exact_or_smaller_stays(end):
    archive = Pareto(objectives={end: "min"}, capacity=2)
    archive.offer(point("fast", 1.0, **{end: 0.9}))
    archive.offer(point("modest", 0.1, 1, **{end: 0.2}))
    assert not archive.offer(point("neither", 0.09, 2, **{end: 0.9}))
    assert archive.offer(point("faster", 1.1, 3, **{end: 0.9})).evicted == "fast"
    assert programs(archive) == {"faster", "modest"}


@pytest.mark.parametrize("end", ["error", "memory_bytes"])
def test_what_was_judged_before_there_was_a_number_beats_no_number(end):
    """Nor does it beat another such: then speed alone decides."""
    archive = Pareto(objectives={end: "min"}, capacity=2)
    archive.offer(point("old", 1.0))
    archive.offer(point("new", 0.1, 1, **{end: 1e12}))
    assert not archive.offer(point("older", 0.9, 2))
    assert archive.offer(point("oldest", 1.1, 3)).evicted == "old"
    assert programs(archive) == {"oldest", "new"}


def test_where_nobody_is_beaten_the_crowd_is_thinned():
    archive = Pareto(objectives={"compile_s": "min"}, capacity=4)
    for number, (value, seconds) in enumerate([(0.0, 0.0), (0.5, 0.5), (0.52, 0.52), (1.0, 1.0)]):
        archive.offer(point(f"p{number}", value, number, compile_s=seconds))
    offer = archive.offer(point("wide", 0.8, 9, compile_s=0.8))
    assert offer.evicted in {"p1", "p2"}


@pytest.mark.parametrize(
    ("points", "crowded"),
    [
        # p1 has gaps of 3/4 and 3/4, p3 of 2/4 and 2/4, but p3 alone is exact
        ([(5.0, 0, 1), (3.0, 0, 3), (1.0, 0, 5), (2.0, 1, 2)], "p1"),
        # p2 is at the end of size together with p1: no gap there, and 2/5 by fitness
        ([(0.0, 4, 2), (5.0, 2, 0), (4.0, 4, 0), (3.0, 4, 1)], "p2"),
    ],
)
def test_the_ends_of_an_objective_stay_unless_two_are_equal_there(points, crowded):
    archive = Pareto(objectives={"exact": "max", "size": "max"}, capacity=3)
    for number, (value, exact, size) in enumerate(points):
        offer = archive.offer(point(f"p{number}", value, number, exact=exact, size=size))
    lost = {f"p{number}" for number in range(4)} - programs(archive)
    assert lost == {crowded}
    assert offer.evicted in (crowded, None)


def test_a_missing_descriptor_is_worse_than_any():
    archive = Pareto(objectives=GOALS, capacity=1)
    archive.offer(point("bare", 0.5))
    assert archive.offer(point("known", 0.5, 1, compile_s=100.0, precision_path="half")) is not None
    assert programs(archive) == {"bare"}, "the first of equally fast ones leads and stays"
    wider = Pareto(objectives=GOALS, capacity=2)
    for elite in (point("lead", 1.0), point("bare", 0.5), point("known", 0.5, 1, compile_s=9.0)):
        wider.offer(elite)
    assert programs(wider) == {"lead", "known"}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4), st.booleans()),
        max_size=40,
    )
)
def test_nobody_unbeaten_gives_way_while_somebody_is_beaten(offers):
    archive = Pareto(objectives=GOALS, capacity=5)
    for sequence, (number, value, seconds, exact) in enumerate(offers):
        word = "fp32" if exact else "half"
        newcomer = point(f"p{number}", value / 4, sequence, compile_s=seconds, precision_path=word)
        held = {elite.program: elite for elite in archive.slots().values()}
        offer = archive.offer(newcomer)
        if len(held) < 5 or newcomer.program in held:
            continue
        everyone = {**held, newcomer.program: newcomer}
        loser = everyone[offer.evicted if offer else newcomer.program]
        best = min(everyone.values(), key=lambda e: (-e.fitness.value, e.sequence))
        count = {p: sum(beats(o, e) for o in everyone.values()) for p, e in everyone.items()}
        others = [n for p, n in count.items() if p != best.program]
        assert loser is not best
        assert count[loser.program] == max(others)


def beats(one, other) -> bool:
    ours, theirs = worths(one), worths(other)
    return ours != theirs and all(a >= b for a, b in zip(ours, theirs, strict=True))


def worths(elite):
    found = elite.descriptors
    return elite.fitness.value, -found["compile_s"], found["precision_path"] == "fp32"


def test_the_order_in_which_objectives_are_given_does_not_matter():
    rng = random.Random(5)
    first = Pareto(objectives=GOALS, capacity=6)
    second = Pareto(objectives=dict(reversed(GOALS.items())), capacity=6)
    for n in range(100):
        elite = point(
            f"p{n}",
            rng.random(),
            n,
            compile_s=rng.random(),
            precision_path=rng.choice(["fp32", "half"]),
        )
        assert first.offer(elite) == second.offer(elite)


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Priority(priority="best"), "choose one of mean, ucb, time"),
        (lambda: Priority(noise=-1), r"archive\.noise"),
        (lambda: Priority(exploration="much"), r"archive\.exploration"),
        (lambda: Priority(noise=math.inf), r"archive\.noise"),
        (lambda: Pareto(objectives={}), r"archive\.objectives must map"),
        (lambda: Pareto(objectives=["compile_s"]), r"archive\.objectives must map"),
        (lambda: Pareto(objectives={"compile_s": None}), r"archive\.objectives must map"),
        (lambda: Pareto(objectives={"compile_s": "low"}), r"archive\.objectives\.compile_s"),
        (lambda: Pareto(objectives={"compile_s": ["a", "a"]}), r"archive\.objectives\.compile_s"),
        (lambda: Pareto(objectives={"compile_s": [1, 2]}), r"archive\.objectives\.compile_s"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, said):
    with pytest.raises(UsageError, match=said):
        make()
