"""What is expected of instances before any was measured.

Invariants:
- nothing is above 0, whatever numbers a program has, and what is left out counts as written;
- an octave of a device's threads without work takes twice the time, any other one a tenth more;
- launches count alike, those without anything to tune not at all;
- of a program in other words nothing is expected;
- a search begins where most is expected, and leaves where it is wrong.
"""

import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.core.source import tunables
from operators.local.tuning import Limits, expected, suggest
from tests.operators.templates_cases import attention
from tests.operators.test_tuning import B200, H200, KERNEL, PRODUCT, USUAL, source_of, space_of

GRID = "triton.cdiv(4096, BLOCK_M) * triton.cdiv(4096, BLOCK_N)"
TILES = KERNEL.replace("[(1,)]", f"[({GRID},)]")
OFF, IDLE = 0.1, math.log(2)


def one(source: str, assignment: dict, limits: Limits = H200) -> float:
    return -expected(source, [assignment], limits)[0]


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, 0),
        ({"BLOCK_K": 16, "NUM_STAGES": 4}, 0),
        ({"BLOCK_M": 256}, OFF),  # 128 sums for a thread
        ({"BLOCK_M": 64}, OFF + IDLE),  # 32 sums, and 8 rows for a warp
        ({"BLOCK_M": 64, "NUM_WARPS": 4}, 0),
        ({"BLOCK_N": 64}, OFF),
        ({"NUM_WARPS": 4}, OFF),
    ],
)
def test_octaves_off_a_usual_tile_cost_a_tenth_and_idle_rows_a_half(changed, lost):
    assert one(source_of(TILES, **PRODUCT), USUAL | changed) == pytest.approx(lost)


def test_sums_that_do_not_lie_in_registers_are_never_too_many():
    large = USUAL | {"BLOCK_M": 256, "BLOCK_N": 256}
    assert one(source_of(TILES, **PRODUCT), large, B200) == 0
    assert one(source_of(TILES, **PRODUCT), USUAL | {"BLOCK_N": 64}, B200) == pytest.approx(OFF)


@pytest.mark.parametrize(("parts", "lost"), [(33, 2 * IDLE), (66, IDLE), (132, 0), (1000, 0)])
def test_a_device_of_which_half_is_idle_takes_twice_the_time(parts, lost):
    kernel = KERNEL.replace("[(1,)]", "[(1, 1, PARTS)]")
    source = source_of(kernel, **PRODUCT | {"PARTS": (33, 66, 132, 1000)})
    assert one(source, USUAL | {"PARTS": parts}) == pytest.approx(lost)


ROWS = """
@triton.jit
def {name}_kernel(x_ptr, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    tl.store(x_ptr, 1)

def {name}(x):
    {name}_kernel[{grid}](x, XBLOCK={X}, R0_BLOCK=R0_BLOCK, num_warps=NUM_WARPS)
"""
BLOCKS = {"XBLOCK": (1, 4), "R0_BLOCK": (1024, 32, 8192), "NUM_WARPS": (4, 1, 8)}
MANY = "(triton.cdiv(8192, XBLOCK),)"


def rows(grid: str = MANY, name: str = "row", X: str = "XBLOCK") -> str:
    return ROWS.format(name=name, grid=grid, X=X)


@pytest.mark.parametrize(
    ("changed", "lost"),
    [
        ({}, 0),  # 8 elements for a thread
        ({"XBLOCK": 4}, 2 * OFF),
        ({"R0_BLOCK": 8192, "NUM_WARPS": 8}, 2 * OFF),
        ({"R0_BLOCK": 32}, 2 * IDLE),
        ({"R0_BLOCK": 32, "NUM_WARPS": 1}, 0),
    ],
)
def test_without_products_a_thread_has_some_elements(changed, lost):
    assert one(source_of(rows(), **BLOCKS), changed) == pytest.approx(lost)


def test_memory_is_kept_busy_by_many_threads():
    source = source_of(rows("(264,)"), **BLOCKS)  # two programs for each multiprocessor
    assert one(source, {}) == pytest.approx(2 * IDLE)
    assert one(source, {"NUM_WARPS": 8}) == pytest.approx(IDLE)


@pytest.mark.parametrize("grid", ["grid", "lambda meta: (meta['XBLOCK'],)", "(x.shape[0],)"])
def test_of_programs_that_nobody_can_count_there_are_enough(grid):
    source = source_of(rows(grid), **BLOCKS)
    assert one(source, {}) == 0
    assert one(source, {"XBLOCK": 4}) == pytest.approx(2 * OFF)


def test_launches_count_alike_and_those_without_anything_to_tune_not_at_all():
    own = source_of(rows(), **BLOCKS)
    with_another = source_of(rows() + rows(name="other", X="1"), **BLOCKS)
    fixed = rows(name="fixed", X="64").replace(
        "R0_BLOCK=R0_BLOCK, num_warps=NUM_WARPS", "R0_BLOCK=64"
    )
    assert one(own, {"XBLOCK": 4}) == pytest.approx(2 * OFF)
    assert one(with_another, {"XBLOCK": 4}) == pytest.approx(OFF)
    assert one(source_of(rows() + fixed, **BLOCKS), {"XBLOCK": 4}) == pytest.approx(2 * OFF)


BARE = """
@triton.jit
def bare_kernel(x_ptr):
    {line}

def bare(x):
    bare_kernel[{grid}](x, num_warps=NUM_WARPS)
"""


@pytest.mark.parametrize(
    ("line", "grid", "counts"),
    [("tl.store(x_ptr, 1)", "grid", False), ("tl.dot(x_ptr, x_ptr)", "grid", False),
     ("tl.store(x_ptr, 1)", "(132,)", True)],
)  # fmt: skip
def test_a_launch_that_can_lose_nothing_makes_others_count_no_less(line, grid, counts):
    bare = BARE.format(line=line, grid=grid)
    own, both = source_of(rows(), **BLOCKS), source_of(rows() + bare, **BLOCKS)
    lost = one(own, {"XBLOCK": 4})
    bare_lost = 3 * IDLE  # a program of 4 warps for each multiprocessor
    assert one(both, {"XBLOCK": 4}) == pytest.approx((lost + bare_lost) / 2 if counts else lost)


def test_attention_has_scores_and_values_of_usual_size():
    heads = torch.empty(8, 16, 1024, 64, device="meta")
    source = attention("a", "flash_attention", heads, heads, heads, ", 0.0, False")["source"]
    sizes = {"BLOCK_M": 128, "BLOCK_N": 64, "NUM_WARPS": 4}
    found = {
        changed: one(source, {f"ATTENTION_{n}": v for n, v in (sizes | dict(changed)).items()})
        for changed in [(), (("BLOCK_N", 16),), (("BLOCK_M", 32),), (("NUM_WARPS", 8),)]
    }
    assert list(found.values()) == pytest.approx([0, 2 * OFF, 4 * OFF + IDLE, 2 * OFF])


SEEDS = sorted(Path("examples/tasks").glob("*/seeds/*.py"))


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: f"{path.parts[-3]} {path.stem}")
def test_of_the_seeds_that_ship_nothing_is_expected_but_of_those_in_triton(path):
    source = path.read_text()
    space = tunables.parse(source)
    found = expected(source, [space.sample(random.Random(k)) for k in range(20)], H200)
    assert found.shape == (20,)
    assert (found <= 0).all()
    if "triton" not in path.stem:
        assert not found.any()


NUMBERS = st.integers(-5, 300) | st.sampled_from([0, 1 << 40, -(1 << 62), 1 << 62])


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=5), st.booleans())
@settings(deadline=None, max_examples=50)
def test_whatever_the_numbers_are_what_is_expected_is_finite_and_not_above_nothing_lost(
    values, multiplies
):
    names = ("BLOCK_M", "BLOCK_N", "NUM_WARPS") if multiplies else tuple(BLOCKS)
    columns = zip(*values, strict=True)
    choices = {name: tuple({*each, 1, 2}) for name, each in zip(names, columns, strict=True)}
    usual = {name: (value,) for name, value in USUAL.items()} | {"INPUT_PRECISION": ("ieee",)}
    source = source_of(TILES, **usual | choices) if multiplies else source_of(rows(), **choices)
    found = expected(source, [dict(zip(names, each, strict=True)) for each in values], H200)
    assert np.isfinite(found).all()
    assert (found <= 0).all()


def test_what_is_left_out_of_an_instance_is_as_written():
    source = source_of(TILES, **PRODUCT)
    written = tunables.parse(source).defaults
    assert one(source, {}) == one(source, written) > 0
    assert one(source, {"BLOCK_M": 128}) == one(source, written | {"BLOCK_M": 128})


def test_the_first_suggestion_is_what_most_is_expected_of():
    source = source_of(TILES, **PRODUCT)
    space = tunables.parse(source)
    listed = list(space.assignments())
    chosen = suggest(
        space,
        [(space.defaults, 0.0)],
        listed,
        random.Random(0),
        lambda instances: expected(source, instances, H200),
    )
    assert one(source, chosen) == 0


def test_where_nothing_is_expected_the_first_suggestion_is_any():
    space = space_of(A=tuple(range(9)), B=tuple(range(9)))
    listed = [one for one in space.assignments() if one != space.defaults]
    rng = random.Random(0)
    found = [suggest(space, [(space.defaults, 0.0)], listed, rng) for _ in range(60)]
    assert len({tuple(one.values()) for one in found}) > 30


def test_a_wrong_expectation_is_left_for_what_is_measured():
    powers = tuple(1 << k for k in range(9))
    space = space_of(A=powers, B=powers)
    listed = [{"A": a, "B": b} for a, b in itertools.product(powers, powers)]

    def value(instance: dict, sign: int = 1) -> float:
        return -0.1 * sign * sum(abs(math.log2(instance[name] / 64)) for name in ("A", "B"))

    known = [(space.defaults, value(space.defaults))]
    for turn in range(25):
        chosen = suggest(
            space,
            known,
            [each for each in listed if each not in [k for k, _ in known]],
            random.Random(turn),
            lambda instances: np.array([value(each, sign=-1) for each in instances]),
        )
        known.append((chosen, value(chosen)))
    assert max(found for _, found in known) >= -0.1
