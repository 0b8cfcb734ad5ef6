"""Novelty.

Invariants:
1. No two programs that are held are near each other, also where the best instance of one changes;
   of near ones the fastest is held.
2. What a distance knows nothing of is near nothing.
3. Distances are from 0 to 1, and 0 to itself.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archives import MapElites, Novelty, TopK
from archives.distances import Embedding, Numbers, Text
from evolve.core.errors import UsageError
from evolve.core.source.sketch import sketch
from evolve.testing.parts import make_elite

KERNEL = """
import torch, triton
import triton.language as tl

@triton.jit
def scale(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    total = tl.sum(value, axis=0)
    tl.store(out + at, value / total, mask=at < n)

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        scale[(1,)](x, out, x.numel(), BLOCK=1024)
        return out
"""
RENAMED = KERNEL.replace("value", "loaded").replace("total", "z") + "# mine\n"
RETUNED = KERNEL.replace("1024", "2048")
OTHER = KERNEL.replace(
    "    total = tl.sum(value, axis=0)\n",
    "    high = tl.max(value, axis=0)\n    value = tl.exp(value - high)\n"
    "    total = tl.sum(tl.where(at < n, value, 0.0), axis=0)\n",
)


def kernel(program: str, source: str, speedup: float = 1.0, sequence: int = 0):
    return make_elite(
        program, speedup=speedup, sequence=sequence, descriptors={"sketch": sketch(source)}
    )


def programs(archive) -> set[str]:
    return {elite.program for elite in archive.slots().values()}


def novelty(**settings):
    return Novelty(**{"of": TopK, "capacity": 10} | settings)


def test_a_renamed_copy_that_is_no_faster_is_refused():
    archive = novelty()
    archive.offer(kernel("first", KERNEL))
    assert not archive.offer(kernel("renamed", RENAMED, sequence=1))
    assert archive.offer(kernel("other", OTHER, speedup=0.5, sequence=2))


def test_a_faster_near_copy_takes_the_place_of_those_near_it():
    archive = novelty(epsilon=0.1)
    archive.offer(kernel("first", KERNEL))
    archive.offer(kernel("other", OTHER, speedup=3.0, sequence=1))
    offer = archive.offer(kernel("retuned", RETUNED, speedup=1.1, sequence=2))
    assert offer.evicted == "first"
    assert programs(archive) == {"retuned", "other"}


def by_block(**speedups: tuple[float, float]):
    """Programs by name with block and speedup, told apart by their blocks."""
    archive = novelty(distance=Numbers(descriptors=["block"]), epsilon=0.1)
    for number, (name, (block, speedup)) in enumerate(speedups.items()):
        archive.offer(blocked(name, block, speedup, number))
    return archive


def blocked(name: str, block: float, speedup: float, sequence: int = 0):
    return make_elite(name, speedup=speedup, sequence=sequence, descriptors={"block": block})


def test_a_held_program_that_comes_near_a_faster_one_leaves():
    archive = by_block(slow=(8.0, 1.0), fast=(64.0, 2.0))
    offer = archive.offer(blocked("slow", 64.0, 1.5))
    assert (bool(offer), offer.evicted) == (False, "slow")
    assert programs(archive) == {"fast"}
    assert archive.offer(blocked("slow", 8.0, 1.5))


def test_a_held_program_that_comes_near_a_slower_one_clears_it():
    archive = by_block(slow=(8.0, 1.0), fast=(64.0, 2.0))
    offer = archive.offer(blocked("fast", 8.0, 2.5, sequence=1))
    assert (bool(offer), offer.evicted) == (True, "slow")
    assert programs(archive) == {"fast"}


def test_near_copies_stay_where_the_archive_does_not_take_the_newcomer():
    axes = {"block": [0, 10, 20]}
    near = Numbers(descriptors=["block"])
    archive = Novelty(of=lambda capacity: MapElites(axes=axes, capacity=capacity), epsilon=0.2,
                      distance=near)  # fmt: skip
    archive.offer(make_elite("left", descriptors={"block": 9.5}))
    archive.offer(make_elite("right", speedup=3.0, descriptors={"block": 13.0}))
    assert not archive.offer(make_elite("new", speedup=2.0, descriptors={"block": 10.4}))
    assert programs(archive) == {"left", "right"}


def test_an_epsilon_of_0_refuses_only_what_is_the_same():
    archive = novelty(epsilon=0)
    archive.offer(kernel("first", KERNEL))
    assert not archive.offer(kernel("renamed", RENAMED, sequence=1))
    assert archive.offer(kernel("retuned", RETUNED, sequence=2))


def loops(source: str) -> list[float]:
    """An embedding: what a program does, by its words."""
    return [float(source.count(word)) for word in ("tl.sum", "tl.max", "tl.exp", "tl.load")]


def embedded(program: str, source: str, by: Embedding, speedup: float = 1.0):
    said = {name: describe(source) for name, describe in by.describes.items()}
    return make_elite(program, speedup=speedup, descriptors=said)


def test_programs_are_told_apart_by_the_embedding_of_a_users_function():
    by = Embedding(function=f"{__name__}.loops", width=4)
    archive = novelty(distance=by, epsilon=0.01)
    assert archive.describes.keys() == {f"embedding:{__name__}.loops"}
    archive.offer(embedded("first", KERNEL, by))
    assert not archive.offer(embedded("longer", KERNEL + "\nMORE = 1\n" * 40, by))
    assert archive.offer(embedded("other", OTHER, by))
    again = novelty(distance=Embedding(function=f"{__name__}.loops", width=4), epsilon=0.01)
    again.restore(archive.slots())
    assert not again.offer(embedded("late", OTHER, by))


@pytest.mark.parametrize(
    ("function", "said"),
    [("loops", "package.module.name"), ("no_such_module.loops", "no_such_module")],
)
def test_a_function_that_cannot_be_found_is_refused(function, said):
    with pytest.raises(UsageError, match=said):
        Embedding(function=function, width=4)


def test_an_embedding_of_another_width_is_refused():
    by = Embedding(function=f"{__name__}.loops", width=3)
    with pytest.raises(UsageError, match=r"archive\.distance\.width=3"):
        embedded("first", KERNEL, by)


def test_only_on_request_are_near_ones_turned_away_before_they_are_judged():
    late, early = novelty(), novelty(before_judging=True)
    for archive in (late, early):
        archive.offer(kernel("first", KERNEL))
    assert late.near_duplicate_of({"sketch": sketch(RENAMED)}) is None
    assert early.near_duplicate_of({"sketch": sketch(RENAMED)}) == "first"
    assert early.near_duplicate_of({"sketch": sketch(OTHER)}) is None


def test_programs_without_a_sketch_are_near_none():
    archive = novelty(epsilon=1)
    for number, descriptors in enumerate([{}, {"sketch": "short"}, {"sketch": 4.0}]):
        assert archive.offer(make_elite(f"p{number}", descriptors=descriptors))


def test_a_program_that_was_pushed_out_is_near_nobody_any_more():
    archive = novelty(capacity=1)
    archive.offer(kernel("first", KERNEL))
    archive.offer(kernel("other", OTHER, speedup=2.0, sequence=1))
    assert archive.offer(kernel("renamed", RENAMED, speedup=3.0, sequence=2)).evicted == "other"


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=60))
def test_no_two_of_those_held_are_near_and_the_fastest_of_a_crowd_is(offers):
    near = Numbers(descriptors=["block"])
    archive = Novelty(of=TopK, capacity=1000, epsilon=0.3, distance=near)
    for number, (block, speedup) in enumerate(offers):
        elite = make_elite(
            f"p{number}", speedup=speedup, sequence=number, descriptors={"block": block}
        )
        held = list(archive.slots().values())
        close = [other for other in held if apart(near, elite, other) <= 0.3]
        kept = archive.offer(elite)
        assert bool(kept) == all(other.fitness.value < elite.fitness.value for other in close)
    held = list(archive.slots().values())
    for n, one in enumerate(held):
        assert all(apart(near, one, other) > 0.3 for other in held[:n])


def apart(distance, one, other) -> float:
    row, rows = distance.row(one.descriptors), np.array([distance.row(other.descriptors)])
    return float(distance.between(row, rows)[0])


SIZES = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0, 1e6))


@given(st.lists(st.lists(SIZES, min_size=2, max_size=2), min_size=1, max_size=5))
def test_numbers_differ_by_their_mean_relative_difference(values):
    def share(left: float, right: float) -> float:
        return 0.0 if left == right else abs(left - right) / max(left, right)

    distance = Numbers(descriptors=["a", "b"])
    rows = np.array([distance.row({"a": a, "b": b}) for a, b in values])
    found = distance.between(rows[0], rows)
    first = values[0]
    expected = [(share(first[0], a) + share(first[1], b)) / 2 for a, b in values]
    assert found == pytest.approx(expected)
    assert found[0] == 0
    assert ((found >= 0) & (found <= 1)).all()


def test_texts_differ_by_what_is_not_in_common():
    text = Text()
    rows = np.array([text.row({"sketch": sketch(s)}) for s in (KERNEL, RENAMED, RETUNED, OTHER)])
    same, renamed, retuned, other = text.between(rows[0], rows)
    assert same == renamed == 0
    assert 0 < retuned < 0.1 < other < 0.5


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: novelty(epsilon=-0.1), r"archive\.epsilon must be a number from 0 to 1"),
        (lambda: novelty(epsilon="near"), r"archive\.epsilon"),
        (lambda: novelty(of=TopK(capacity=5)), r"archive\.of\._partial_=true"),
        (lambda: Numbers(descriptors=[]), r"archive\.distance\.descriptors"),
        (lambda: Numbers(descriptors="registers"), r"archive\.distance\.descriptors"),
    ],
)
def test_wrong_settings_are_refused_by_name(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_novelty_holds_apart_more_programs_than_fit_into_the_first_rows():
    archive = novelty(distance=Numbers(descriptors=["block"]), epsilon=0.001, capacity=40)
    for number in range(40):
        archive.offer(make_elite(f"p{number}", descriptors={"block": 2.0**number}))
    assert len(programs(archive)) == 40
    for number in range(40):
        name = f"again{number}"
        assert not archive.offer(make_elite(name, sequence=1, descriptors={"block": 2.0**number}))
