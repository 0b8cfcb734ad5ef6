"""Products and convolutions of operands that are cut into parts beforehand.

Invariants: whatever layouts and sizes, the result is as near to that in float64 as one in float32
is, relative to the largest of a line, also of elements that float16 has not the range for; what is
infinite spoils its own line alone; what is too small for it to pay, and what is fp16 or bf16
already, is multiplied as ever. Two products for each of float32 are as near as three of bfloat16,
and pass the judge on all its input families if sums are long; too short ones are not offered them.

Under Triton's interpreter, with parts in float16: it multiplies the bits of bfloat16. The other
precisions are tested on a GPU.
"""

import json
import random

import pytest
import torch

from evolve.core.source import tunables
from operators.local.templates import How
from tests.operators.differences import differences_by
from tests.operators.output_code import image, matrix, quick
from tests.operators.packed_cases import (
    FEW_FILTERS,
    PACKED,
    PACKED_CASES,
    STRETCHED_CASES,
    WIDE_CASES,
    several,
)
from tests.operators.templates_cases import convolution, product
from tests.operators.templates_running import answers
from tests.worker.judging import task_source

pytestmark = pytest.mark.timeout(300)  # one process interprets all programs before a first test
CASES = [*PACKED_CASES, *WIDE_CASES]


def drawn(case):
    """With blocks of any size, and of the precisions the one that it begins with."""
    chosen = quick(tunables.parse(case["source"]), random.Random(case["name"]))
    kept = {name: value for name, value in chosen.items() if "PRECISION" not in name}
    return case | {"source": tunables.render(case["source"], kept)}


@pytest.mark.slow
@pytest.mark.parametrize("are_long", [False, True])  # in two processes, which have 300 s each
def test_parts_make_up_float32(are_long):
    cases = [case for case in CASES if ("long lines" in case["name"]) == are_long]
    found = answers([drawn(case) for case in cases], "cpu", TRITON_INTERPRET="1")
    assert len(found) == len(cases) > 0
    # Differences of up to three products add up.
    assert {name: far for name, far in found.items() if not far < 2e-6} == {}


@pytest.mark.sample(26)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_operands_are_cut_before_they_are_multiplied(case):
    forward = case["source"][case["source"].index("class ModelNew") :]
    cuts = ("pack_kernel[", "pack_chunk_kernel[", "conv_filters_kernel[")
    products, narrow = forward.count("_packed_"), forward.count("matmul_narrow_")
    wanted = 2 * products + narrow  # narrow ones cut an operand themselves
    assert sum(forward.count(f" {cut}") for cut in (*cuts, "conv_pack_kernel[")) == wanted
    first = "_packed_" if products else "matmul_narrow_"
    assert max(forward.find(cut) for cut in cuts) < forward.index(first)
    precisions = (t for t in tunables.parse(case["source"]) if "PRECISION" in t.name)
    known = {("fp16x3", "bf16x6")} if products else set()  # there is no choice
    assert {precision.choices for precision in precisions} == known


def begun_with(source: str) -> list[object]:
    begun = tunables.parse(source).defaults
    return [value for name, value in begun.items() if name.endswith("INPUT_PRECISION")]


@pytest.mark.parametrize(
    ("precisions", "first"),
    [(("tf32", "bf16x6"), "fp16"), (("bf16x6", "tf32"), "fp16x3"), (("bf16x6",), "fp16x3")],
)
def test_one_part_stands_for_tf32(precisions, first):
    side = matrix(512, 512)
    case = product("rounded", side, side, **PACKED, precisions=precisions)
    assert begun_with(case["source"]) == [first]


@pytest.mark.slow  # a quick test is below: which convolutions have them
def test_outputs_of_few_filters_are_the_same_side_by_side():
    found = answers([drawn(case) for case in FEW_FILTERS], "cpu", TRITON_INTERPRET="1")
    assert len(found) == len(FEW_FILTERS)
    assert {name: far for name, far in found.items() if not far < 2e-6} == {}
    assert all("conv_wide_" in case["source"] for case in FEW_FILTERS)


def test_a_stride_wider_than_the_narrowest_block_has_no_outputs_side_by_side():
    x, weight = image(1, 8, 3), image(8, 4, 32)
    case = convolution("stride 32", x, weight, how=How.WIDE, stride=(32,), transposed=True)
    assert "conv_wide_" not in case["source"]


SIDE_BY_SIDE = {
    "few filters": (image(4, 32, 9, 9), image(16, 32, 3, 5), {}, (1, 1, 4)),
    "back between inputs": (
        image(4, 32, 9, 9),
        image(32, 8, 4, 4),
        {"transposed": True, "stride": (2, 2)},
        (1, 2, 4),
    ),
    "back in groups": (
        image(8, 32, 12, 24, 48),
        image(32, 8, 3, 5, 7),
        {"transposed": True, "stride": (2, 2, 2), "padding": (1, 2, 3), "groups": 4},
        (2, 2, 2),
    ),
    "many filters": (image(4, 32, 9, 9), image(64, 32, 3, 5), {}, None),
    "one tap": (image(4, 64, 9, 9), image(32, 64, 1, 1), {}, None),
}


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_outputs_are_side_by_side_where_columns_are_few_and_share_inputs(name):
    x, weight, options, phases = SIDE_BY_SIDE[name]
    source = convolution(name, x, weight, how=How.WIDE, **options)["source"]
    assert ("conv_wide_kernel[" in source) == (phases is not None)
    if phases:
        called = source[source.index("conv_wide_kernel[") :]
        assert f"PHASES={phases}" in called
    else:
        assert source == convolution(name, x, weight, how=How.STRETCHED, **options)["source"]


@pytest.mark.slow  # a quick test is below: which sums are offered it
def test_two_products_make_up_float32_as_nearly_as_three_of_bfloat16():
    found = answers([drawn(case) for case in STRETCHED_CASES], "cpu", TRITON_INTERPRET="1")
    assert {name: far for name, far in found.items() if not far < 1e-5} == {}
    assert all(begun_with(case["source"]) == ["fp16x2"] for case in STRETCHED_CASES)
    assert max(found.values()) > 1e-6  # three products of float16 are nearer


JUDGED = {"rand": (1024, ()), "randn": (8192, ("task", "sparse"))}
"""The least depths for which all families pass, and families: of all, others allow for more."""


@pytest.mark.slow  # as above
@pytest.mark.parametrize("draw", JUDGED)
def test_two_products_pass_the_judge_if_sums_are_long(draw):
    depth, families = JUDGED[draw]
    a, b = matrix(512, depth), matrix(depth, 512)
    source = product("", a, b, how=How.STRETCHED, multiprocessors=16)["source"]
    blocks = dict.fromkeys(("MATMUL_PACKED_BLOCK_M", "MATMUL_PACKED_BLOCK_N"), 256)
    inputs = f"[torch.{draw}(512, {depth}), torch.{draw}({depth}, 512)]"
    task = task_source("a @ b", inputs, arguments="a, b")
    case = {"name": draw, "source": tunables.render(source, blocks), "task": task}
    given = json.dumps([case | {"families": families}])
    found = differences_by("judged_running", given=given, TRITON_INTERPRET="1")[draw]
    assert {"task", "sparse"} <= found.keys()
    assert set(found.values()) == {"correct"}, found


@pytest.mark.parametrize(
    ("depth", "how", "offered"),
    [
        (1023, How.STRETCHED, ("fp16x3", "bf16x6")),
        (1024, How.STRETCHED, ("fp16x2", "fp16x3", "bf16x6")),
        (8191, How.LONG, ("fp16x3", "bf16x6")),
        (8192, How.LONG, ("fp16x2", "fp16x3", "bf16x6")),
        (8192, How.PACKED, ("fp16x3", "bf16x6")),
    ],
)
def test_sums_that_are_long_enough_may_be_of_two_products(depth, how, offered):
    a, b = matrix(512, depth), matrix(depth, 512)
    source = product("long", a, b, **PACKED | {"how": how})["source"]
    x, weight = image(2, depth, 7, 8), image(64, depth, 1, 1)
    cut = convolution("long", x, weight, how=how)["source"]
    for each in (source, cut):
        found = next(t for t in tunables.parse(each) if t.name.endswith("INPUT_PRECISION"))
        assert (found.choices, found.default) == (offered, offered[0])


def test_runs_that_are_divided_differently_share_no_tunables(monkeypatch):
    monkeypatch.setattr(
        "operators.local.templates.products._OWN_TUNABLES", 0
    )  # all of a family share
    depths = [t.choices for t in tunables.parse(several()["source"]) if "BLOCK_K" in t.name]
    assert sorted(map(max, depths)) == [32, 64, 64]  # runs have room for 96, 192 and 256 elements


def test_long_lines_that_lie_across_are_cut_by_many_programs():
    for turned, count in ((False, 1), (True, 0)):  # of b, whose lines are columns
        a, b = matrix(2048, 4096), matrix(4096, 2048, turned=turned)
        source = product("long", a, b, how=How.PACKED)["source"]
        assert (
            source.count(" pack_chunk_kernel[") == source.count(" largest_chunk_kernel[") == count
        )
        assert source.count(" pack_kernel[") == 2 - count
        if count:
            called = source[source.index(" pack_chunk_kernel[") :]
            assert "pack_chunk_kernel[32, 8, 1](" in called.replace("[(", "[").replace(")]", "]")


@pytest.mark.parametrize(
    ("rows", "columns", "depth"),
    [(4096, 200, 4096), (300, 300, 4096), (512, 512, 4096), (4096, 4096, 32)],
)
def test_where_operands_are_read_once_or_twice_they_are_not_cut(rows, columns, depth):
    case = product("small", matrix(rows, depth), matrix(depth, columns), how=How.PACKED)
    assert "pack_kernel" not in case["source"]


@pytest.mark.parametrize(("filters", "kernel"), [(16, 1), (3, 3), (3, 7)])
def test_a_convolution_with_few_products_for_each_element_is_not_cut(filters, kernel):
    x, weight = image(2, 20, 9, 9), image(filters, 20, kernel, kernel)
    assert "conv_packed_kernel" not in convolution("small", x, weight, how=How.PACKED)["source"]


def test_halves_are_not_cut():
    half = matrix(1024, 1024).to(torch.float16)
    assert "pack_kernel" not in product("half", half, half, how=How.PACKED)["source"]
    x, weight = (image(*shape).to(torch.bfloat16) for shape in ((2, 20, 9, 9), (64, 20, 3, 3)))
    assert "conv_packed_kernel" not in convolution("half", x, weight, how=How.PACKED)["source"]
