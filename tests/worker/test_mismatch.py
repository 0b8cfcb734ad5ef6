"""What a wrong output is said to look like.

Invariants:
- a planted mistake is named, whatever the values are;
- the description says nothing about tensors of any shape or dtype by raising;
- no value of the truth stands in it.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from torch import Tensor

from evolve.worker.correctness.mismatch import describe_mismatch, describe_pattern

torch.set_num_threads(1)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pattern(output: Tensor, truth: Tensor) -> str:
    wrong = ~torch.isclose(output.double(), truth.double(), rtol=1e-6, atol=1e-9)
    return describe_pattern(output, truth, wrong)


def changed(truth: Tensor, index, value) -> Tensor:
    """A copy with something else in one place."""
    output = truth.clone()
    output[index] = value
    return output


T = values(48, 80)
SQUARE = values(64, 64)
CUBE = values(6, 20, 40)


def noise(tensor: Tensor) -> Tensor:
    return values(*tensor.shape, seed=9)


PLANTED = {
    "all zeros": (torch.zeros_like(T), T, "all zeros"),
    "one value everywhere": (torch.full_like(T, 3.0), T, "all elements equal"),
    "a factor": (T * 1.5, T, "a factor of 1.5"),
    "a factor near one": (T * 1.002, T, "a factor of 1.002"),
    "a sum for a mean": (T * 80, T, "80, the size of dimension 1"),
    "a scale forgotten": (T * math.sqrt(48), T, "the root of 48"),
    "the other logarithm": (T * math.log2(math.e), T, "log2 in place of ln"),
    "a flipped sign": (-T, T, "sign is flipped"),
    "an offset": (T + 2, T, "constant offset"),
    "transposed": (SQUARE.T, SQUARE, "last two dimensions transposed"),
    "written transposed": (T.T.reshape(T.shape), T, "last two dimensions transposed"),
    "batch transposed": (CUBE.transpose(0, 1).reshape(CUBE.shape), CUBE, "dimensions 0 and 1"),
    "one column too late": (torch.cat([T[:, :1], T[:, :-1]], 1), T, "along the columns"),
    "one column too early": (torch.cat([T[:, 1:], T[:, :1]], 1), T, "too early"),
    "one row too late": (T.roll(1, 0), T, "off by one along the rows"),
    "one batch entry off": (CUBE.roll(1, 0), CUBE, "off by one along dimension 0"),
    "reversed": (T.flip(-1), T, "reversed along the columns"),
    "rows scaled": (T * (1 + values(48, 1).abs()), T, "every row is right up to a factor"),
    "rows shifted": (T + values(48, 1), T, "every row is right up to an offset"),
    "columns scaled": (T * (1 + values(80).abs()), T, "every column is right up to a factor"),
    "tail columns": (changed(T, (slice(None), slice(64, None)), 7.0), T,
                     "the tail: columns 64 to 79 of 80 (at a multiple of 64)"),
    "tail columns not written": (changed(T, (slice(None), slice(64, None)), 0.0), T,
                                 "never written"),
    "tail rows": (changed(T, slice(40, None), noise(T)[40:]), T, "the tail: rows 40 to 47 of 48"),
    "the first rows only": (changed(T, slice(8, None), 0.0), T, "rows 8 to 47"),
    "the last element": (changed(values(1000), -1, 9.0), values(1000), "the last column of 1000"),
    "a tail in the middle of a row": (changed(T.reshape(-1), slice(3500, None), 9.0).view(48, 80),
                                      T, "from flat index 3500 of 3840"),
    "one block": (changed(T, (slice(16, 32), slice(32, 64)), noise(T)[16:32, 32:64]), T,
                  "rows 16 to 31 of 48 (at a multiple of 16), columns 32 to 63"),
    "one batch entry": (changed(CUBE, 2, 5.0), CUBE, "index of dimension 0 2 of 6"),
    "one row": (changed(T, 5, 5.0), T, "row 5 of 48"),
    "above the diagonal": (SQUARE + noise(SQUARE).triu(1), SQUARE, "above the diagonal"),
    "on the diagonal": (SQUARE + torch.eye(64), SQUARE, "on the diagonal"),
    "the border": (changed(noise(SQUARE), (slice(1, -1), slice(1, -1)), SQUARE[1:-1, 1:-1]), SQUARE,
                   "at the border"),
    "every fourth column": (changed(T, (slice(None), slice(3, None, 4)), 6.0), T,
                            "every 4th column, from 3 on"),
    "some whole rows": (changed(T, [3, 4, 17, 30], 6.0), T, "whole rows are wrong, 4 of 48"),
    "another order": (T.reshape(-1)[torch.randperm(T.numel())].view(T.shape), T, "another order"),
    "computed in half precision": (T.half().double(), T, "rounding to float16 or TF32"),
    "computed in bfloat16": (T.bfloat16().double(), T, "rounding to bfloat16"),
    "NaN in one row": (changed(T, 7, math.nan), T, "NaN in 2.08% of elements, only in row 7 of 48"),
    "infinite in the tail": (changed(T, (slice(None), slice(72, None)), math.inf), T,
                             "infinite in 10.00% of elements, only in the tail: columns 72 to 79"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_named(name):
    output, truth, words = PLANTED[name]
    assert words in pattern(output, truth)


def test_unrelated_values_are_given_no_pattern():
    assert pattern(noise(T), T) == ""


@given(seed=st.integers(0, 10**6), factor=st.floats(0.01, 100).filter(lambda f: abs(f - 1) > 0.01))
@settings(max_examples=30, deadline=None)
def test_a_factor_is_found_on_any_values(seed, factor):
    truth = values(16, 40, seed=seed)
    assert f"{factor:.4g}" in pattern(truth * factor, truth)


@given(
    seed=st.integers(0, 10**6),
    rows=st.tuples(st.integers(0, 39), st.integers(1, 20)),
    columns=st.tuples(st.integers(0, 55), st.integers(1, 30)),
)
@settings(max_examples=40, deadline=None)
def test_a_wrong_block_is_found_where_it_is(seed, rows, columns):
    truth = values(40, 56, seed=seed)
    bottom, right = min(rows[0] + rows[1], 40), min(columns[0] + columns[1], 56)
    output = changed(truth, (slice(rows[0], bottom), slice(columns[0], right)), 40.0)
    said = pattern(output, truth)
    for low, high, size, what in ((rows[0], bottom, 40, "row"), (columns[0], right, 56, "column")):
        if high - low < size:
            assert what in said
            assert str(high - 1) in said or str(high) in said or "first" in said or "last" in said


@given(
    shape=array_shapes(max_dims=4, max_side=6),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8]),
    share=st.sampled_from([0.0, 0.1, 0.7, 1.0]),
    special=st.sampled_from([None, math.nan, math.inf]),
)
@settings(max_examples=60, deadline=None)
def test_tensors_of_any_shape_and_dtype_are_described(shape, dtype, share, special):
    truth = (values(*shape) * 3).to(dtype)
    wrong = values(*shape, seed=1) < 2 * share - 1
    output = torch.where(wrong, (values(*shape, seed=2) * 3).to(dtype), truth)
    if special is not None and output.is_floating_point():
        output.reshape(-1)[0] = special
    said = describe_mismatch(output, truth, wrong, math.inf)
    assert said.startswith(f"{int(wrong.sum()) / wrong.numel():.2%} of elements wrong")
    assert len(said) < 500


def test_an_empty_output_is_described():
    nothing = torch.empty(0, 4)
    assert describe_mismatch(nothing, nothing, torch.empty(0, 4, dtype=torch.bool), math.inf)


def test_a_large_tensor_is_looked_at_in_a_sample():
    truth = torch.randn(3, 700_000)
    assert "a factor of 2" in pattern(truth * 2, truth)
    assert "transposed" in pattern(truth.T.reshape(truth.shape), truth)
