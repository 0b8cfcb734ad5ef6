"""Lines and grids, each by its own rule; `test_conformance` has what all archives hold to.

Invariants:
1. TopK holds the best programs that were offered.
2. MapElites holds the best program of every cell; bins never move, whatever is offered, and are
   called the same in whatever order the axes are given.
3. Lineage holds programs that were, when offered, as fast as the best one held or faster; its
   slack is a share of that one's speed.
4. A wrong setting is a UsageError that names it.
"""

import math
import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archives import Islands, Lineage, MapElites, Novelty, Pareto, Priority, TopK, Tree
from archives.descriptors import KERNEL_AXES, Axis
from evolve.core.errors import UsageError
from evolve.core.protocols import AddStatus
from evolve.languages.registry import describe
from evolve.testing.parts import make_elite
from tests.archives.classes import AXES


def block(value: float | str) -> dict[str, float | str]:
    return {"block": value, "parallelism": "simd"}


@given(st.dictionaries(st.integers(0, 8), st.integers(1, 50)).map(lambda d: list(d.items())))
def test_topk_holds_the_best_programs_offered(offers):
    archive = TopK(capacity=4)
    best: dict[str, float] = {}
    for sequence, (program, speedup) in enumerate(offers):
        archive.offer(make_elite(f"p{program}", speedup=speedup, sequence=sequence))
        best[f"p{program}"] = speedup
    held = sorted(elite.fitness.value for elite in archive.slots().values())
    assert held == pytest.approx(sorted(map(math.log, sorted(best.values())[-4:])))


@given(st.lists(st.tuples(st.sampled_from([4, 8, 40, 500]), st.integers(1, 50)), max_size=40))
def test_map_elites_holds_the_best_program_of_every_cell(offers):
    archive = MapElites(axes=AXES)
    best: dict[str, float] = {}
    for sequence, (size, speedup) in enumerate(offers):
        archive.offer(
            make_elite(f"p{sequence}", speedup=speedup, sequence=sequence, descriptors=block(size))
        )
        cell = archive.cell(block(size))
        best[cell] = max(best.get(cell, 0), speedup)
    held = {slot: elite.fitness.value for slot, elite in archive.slots().items()}
    assert held == pytest.approx({cell: math.log(speedup) for cell, speedup in best.items()})


@pytest.mark.parametrize(
    ("slack", "speedup", "is_taken"),
    [
        (0, 2.0, True),
        (0, 1.999, False),
        (0, 2.001, True),
        (0.1, 1.801, True),
        (0.1, 1.799, False),
    ],
)
def test_a_version_is_at_least_as_fast_as_the_best_before_it(slack, speedup, is_taken):
    archive = Lineage(slack=slack)
    for sequence, (program, first) in enumerate([("first", 1.0), ("best", 2.0)]):
        archive.offer(make_elite(program, speedup=first, sequence=sequence))
    offer = archive.offer(make_elite("next", speedup=speedup, sequence=2))
    assert (offer.status is not AddStatus.NOT_ADDED) == is_taken


def test_a_version_that_turned_out_slower_stays_in_the_lineage():
    archive = Lineage(slack=0)
    archive.offer(make_elite("first", speedup=2.0))
    archive.offer(make_elite("next", speedup=3.0, sequence=1))
    archive.offer(make_elite("next", speedup=1.0, sequence=2))
    assert {elite.program for elite in archive.slots().values()} == {"first", "next"}


def test_slots_come_best_first():
    archive = TopK(capacity=9)
    for number in random.Random(1).sample(range(1, 10), 9):
        archive.offer(make_elite(f"p{number}", speedup=number))
    assert [elite.program for elite in archive.slots().values()] == [
        f"p{number}" for number in range(9, 0, -1)
    ]


def test_an_equal_program_does_not_replace_the_one_that_was_there_first():
    archive = TopK(capacity=1)
    archive.offer(make_elite("first"))
    assert archive.offer(make_elite("second", sequence=1)).status is AddStatus.NOT_ADDED


def test_the_evicted_program_is_named():
    archive = TopK(capacity=1)
    archive.offer(make_elite("slow"))
    offer = archive.offer(make_elite("fast", speedup=2.0))
    assert (offer.status, offer.evicted) == (AddStatus.IMPROVED, "slow")


@pytest.mark.parametrize(
    ("descriptors", "cell"),
    [
        (block(8), "block=8..32|parallelism=simd"),
        (block(32), "block=32..128|parallelism=simd"),
        (block(128), "block=32..128|parallelism=simd"),
        (block(129), "block=other|parallelism=simd"),
        (block(7.9), "block=other|parallelism=simd"),
        (block(math.nan), "block=other|parallelism=simd"),
        (block("wide"), "block=other|parallelism=simd"),
        ({"parallelism": "fibres"}, "block=none|parallelism=other"),
    ],
)
def test_bins_are_fixed_and_strangers_have_their_own(descriptors, cell):
    assert MapElites(axes=AXES).cell(descriptors) == cell


def test_the_order_in_which_axes_are_given_does_not_matter():
    archives = [MapElites(axes=dict(axes)) for axes in (AXES.items(), reversed(AXES.items()))]
    for number, size in enumerate((8, 64, 9, 200)):
        elite = make_elite(
            f"p{number}", speedup=1 + number, sequence=number, descriptors=block(size)
        )
        for archive in archives:
            archive.offer(elite)
    first, second = (archive.slots() for archive in archives)
    assert first == second
    assert len(first) == 3


def test_the_number_of_cells_bounds_the_capacity():
    assert MapElites(axes=AXES).cells == 4 * 5
    assert MapElites(axes=AXES, depth=2).capacity == 40
    assert MapElites(axes=AXES, depth=2, capacity=30).capacity == 30
    assert MapElites(axes=KERNEL_AXES).capacity == 5 * 6 * 7


def test_every_bin_of_an_axis_is_a_cell_of_its_own():
    axis = Axis.of("block", [8, 32, 128])
    labels = {axis.bin({"block": value}) for value in (8.0, 32.0, 1.0)} | {axis.bin({})}
    assert len(labels) == axis.size


def test_the_judges_descriptors_fall_into_named_bins_by_default():
    cell = MapElites().cell(describe("import torch\nclass ModelNew: pass\n"))
    assert "none" not in cell
    assert "other" not in cell


def test_a_program_whose_better_instance_is_elsewhere_moves_there():
    archive = MapElites(axes=AXES)
    archive.offer(make_elite("p", descriptors=block(8)))
    offer = archive.offer(make_elite("p", speedup=2.0, sequence=1, descriptors=block(64)))
    assert (offer.status, offer.evicted) == (AddStatus.IMPROVED, None)
    assert list(archive.slots()) == ["block=32..128|parallelism=simd"]


def test_a_program_that_would_move_to_a_better_ones_cell_stays_with_what_is_known_of_it():
    archive = MapElites(axes=AXES)
    archive.offer(make_elite("p", descriptors=block(8)))
    archive.offer(make_elite("best", speedup=3.0, sequence=1, descriptors=block(64)))
    now = make_elite("p", speedup=2.0, sequence=2, descriptors=block(64))
    assert archive.offer(now).slot == "block=8..32|parallelism=simd"
    assert now in archive.slots().values()
    assert {elite.program for elite in archive.slots().values()} == {"p", "best"}


def test_a_cell_whose_program_turned_out_slower_is_taken_by_the_next_better_one():
    archive = MapElites(axes=AXES)
    archive.offer(make_elite("lucky", speedup=3.0, descriptors=block(8)))
    assert not archive.offer(make_elite("good", speedup=2.0, sequence=1, descriptors=block(8)))
    archive.offer(replace(make_elite("lucky", speedup=1.1, descriptors=block(8)), evaluations=3))
    assert archive.offer(make_elite("good", speedup=2.0, sequence=2, descriptors=block(8)))
    assert [elite.program for elite in archive.slots().values()] == ["good"]


@pytest.mark.parametrize("capacity", [0, -1, 10_001, 1.5, "abc", True, None])
def test_a_capacity_out_of_range_is_refused_by_name(capacity):
    wrappers = (partial(Islands, of=TopK), partial(Novelty, of=TopK))
    for make in (TopK, MapElites, Priority, Tree, Pareto, *wrappers):
        with pytest.raises(UsageError, match=r"archive\.capacity must be"):
            make(capacity=capacity)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({}, r"archive\.axes must map"),
        (["block"], r"archive\.axes must map"),
        ({"block": 8}, r"archive\.axes\.block must be a list"),
        ({"block": "8"}, r"archive\.axes\.block must be a list"),
        ({"block": []}, "at least two rising edges"),
        ({"block": [8]}, "at least two rising edges"),
        ({"block": [8, 8]}, "at least two rising edges"),
        ({"block": [8, "x"]}, "mixes words and numbers"),
        ({"block": [8, True]}, "mixes words and numbers"),
        ({"block": ["a", "a"]}, "repeats a word"),
        ({"block": ["a", "other"]}, "'other'"),
    ],
)
def test_wrong_axes_are_refused_by_name(axes, said):
    with pytest.raises(UsageError, match=said):
        MapElites(axes=axes)


def test_two_edges_are_enough():
    assert MapElites(axes={"block": [8, 16]}).offer(make_elite("a", descriptors={"block": 9.0}))


def test_a_depth_out_of_range_is_refused_by_name():
    with pytest.raises(UsageError, match=r"archive\.depth"):
        MapElites(depth=0)


def test_more_slots_than_the_capacity_are_refused():
    big, small = TopK(capacity=3), TopK(capacity=2)
    for number in range(3):
        big.offer(make_elite(f"p{number}"))
    with pytest.raises(UsageError, match=r"archive\.capacity=2 is less than the 3"):
        small.restore(big.slots())
