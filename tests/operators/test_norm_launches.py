"""Which kernels a normalisation gets, by its rows, and how large their blocks may be.

Invariants:
1. Short rows are held, long ones are read in a loop, and few long ones are cut into parts.
2. No block is twice as large as the rows, elements or batch that it is for, and no part so short
   that joining it costs as much as reading it.
"""

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.local.templates.operations.norm import launches
from operators.local.templates.tensors import Tensor

MULTIPROCESSORS = 132
SHORTEST = 512  # elements of a part


def norm(rows: int, size: int, inner: int = 1):
    x = Tensor(ast.Name("x", ast.Load()), (rows, size), (size, 1))
    settings = {"AFFINE": "", "KIND": "layer", "SHARE": 1.0, "EPS": 1e-5}
    return launches(x, None, None, x, settings, (rows // inner, size, inner), MULTIPROCESSORS)


@pytest.mark.parametrize(
    ("rows", "size", "kernels"),
    [
        (4096, 1024, ["norm_kernel"]),
        (4096, 8192, ["norm_kernel"]),
        (4096, 8193, ["norm_looped_kernel"]),
        (4096, 1 << 20, ["norm_looped_kernel"]),
        (264, 1 << 20, ["norm_looped_kernel"]),
        (263, 1 << 20, ["norm_parts_kernel", "norm_apply_kernel"]),
        (1, 16384, ["norm_parts_kernel", "norm_apply_kernel"]),
        (1, 16383, ["norm_looped_kernel"]),
    ],
)
def test_rows_are_held_looped_over_or_cut(rows, size, kernels):
    assert [launch.kernel for launch in norm(rows, size)] == kernels


@given(st.integers(1, 5000), st.integers(1, 1 << 22), st.sampled_from([1, 4, 64]))
def test_blocks_and_parts_fit_what_they_are_for(outer: int, size: int, inner: int):
    rows = outer * inner
    least = {"BLOCK_M": 16 if inner > 1 else 1, "BLOCK_K": 512, "BLOCK": 512}
    for launch in norm(rows, size, inner):
        for name, most in (("BLOCK_M", rows), ("BLOCK_K", size), ("BLOCK", size)):
            if name in launch.tunables:
                assert max(launch.tunables[name].choices) < 2 * max(most, least[name])
        if "PARTS" in launch.tunables:
            assert size / max(launch.tunables["PARTS"].choices) >= SHORTEST
        for blocks in launch.tunables.values():
            assert blocks.first in blocks.choices
