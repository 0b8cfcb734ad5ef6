"""Errors by blocks: the same numbers however many elements are looked at together.

Invariants: the pieces that a comparison is made in change nothing; zeros that are only meant are
those that are there; an outcome that did not move has no motion; what is worked out in few steps
is what the definitions say, but for the order of sums, a few units in the last place of fp64.
"""

import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.worker.correctness import tolerance as blocks
from evolve.worker.correctness.tolerance import (
    KAPPA,
    MIN_SCALE,
    PEAK,
    Arithmetic,
    block_length,
    error_blocks,
    error_floor,
    motion_blocks,
    no_motion,
    output_budget,
)

SUMS = 8 * torch.finfo(torch.float64).eps  # torch 2.11 and 2.13 add in different orders
SHAPES = st.lists(st.integers(1, 40), max_size=3).map(tuple)
# Rows of 1100 elements are of several blocks, and 70 rows of more than are looked at around one.
ROWS, LENGTHS = (st.sampled_from(sizes) for sizes in ([1, 3, 9, 70], [1, 3, 9, 64, 70, 300, 1100]))
LARGER = st.one_of(st.just(()), st.tuples(LENGTHS), st.tuples(ROWS, LENGTHS))
FLOATS = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.complex64])


def values(shape, dtype, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@settings(deadline=None)
@given(SHAPES, st.integers(1, 700), st.integers(0, 9), st.integers(1, 300))
def test_the_pieces_that_are_compared_together_change_nothing(shape, buffer, seed, block):
    outcome, truth = values(shape, torch.float32, seed), values(shape, torch.float64, seed + 1)
    whole = error_blocks(outcome, truth, block)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_SLAB", buffer)
        pieces = error_blocks(outcome, truth, block)
    for one, other in zip(whole, pieces, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


@settings(deadline=None)
@given(SHAPES, st.integers(0, 9), st.sampled_from([None, float("inf"), float("nan")]))
def test_zeros_need_not_be_there_to_be_compared_with(shape, seed, odd):
    truth = values(shape, torch.float64, seed)
    if odd is not None:
        truth.view(-1)[0] = odd
    meant = error_blocks(None, truth, block_length(truth.shape))
    there = error_blocks(torch.zeros_like(truth), truth, block_length(truth.shape))
    assert all(map(torch.equal, meant, there))


@settings(deadline=None)
@given(SHAPES, FLOATS, st.integers(0, 9))
def test_what_did_not_move_has_no_motion(shape, dtype, seed):
    outcome = values(shape, dtype, seed)
    assert torch.equal(motion_blocks(outcome, outcome, dtype), no_motion(outcome))


@pytest.mark.parametrize("outcome", [torch.arange(5), torch.zeros(0, 3), torch.ones(4) > 0])
def test_what_has_no_floating_elements_has_no_blocks(outcome):
    assert no_motion(outcome).shape == motion_blocks(outcome, outcome, torch.float32).shape == (0,)


def plainly_blocks(error, block):
    """Root mean square and largest of the finite errors of every block, one after the other."""
    rms, peak = [], []
    for start in range(0, error.numel(), block):
        part = error[start : start + block].clone()
        part[~part.isfinite()] = 0
        missing = torch.zeros(block - part.numel(), dtype=part.dtype)
        row = torch.cat([part, missing])[None]
        rms.append(
            torch.linalg.vector_norm(row, dim=1) / torch.tensor(part.numel() * 1.0).double().sqrt()
        )
        peak.append(part.abs().max()[None])
    return torch.cat(rms), torch.cat(peak)


def plainly_some(sizes):
    some = sizes[sizes > 0]
    return some.median() if some.numel() else None


def plainly_over_row(sizes, last, block):
    rows = [at * block // max(last, block) for at in range(sizes.numel())]
    own = defaultdict(list)
    for size, row in zip(sizes, rows, strict=True):
        own[row].append(size.square())
    found = {row: (sum(own[row][1:], own[row][0]) / len(own[row])).sqrt() for row in own}
    return torch.stack([found[row] for row in rows])


def plainly_budget(reference, truth, arithmetic):
    """Scale, root mean square and peak as `tolerance` defines them."""
    block = block_length(truth.shape)
    flat, own = truth.reshape(-1), reference.reshape(-1).double()
    finite = bool(own.isfinite().all() and flat.isfinite().all())
    held = (
        flat if finite else torch.where(flat.abs() <= torch.finfo(reference.dtype).max, flat, 0.0)
    )
    size, _ = plainly_blocks(held, block)
    scale = torch.ones_like(size)
    if (middle := plainly_some(size)) is not None:
        over = plainly_over_row(size, truth.shape[-1] if truth.shape else 1, block)
        scale = torch.maximum(size, MIN_SCALE * torch.maximum(over, middle))
    rms, peak = (error / scale for error in plainly_blocks(own - flat, block))
    floor = error_floor(reference.dtype, arithmetic, 1.0)
    allowed = (KAPPA * rms.clamp(min=float(rms.median()))).clamp(min=floor)
    typical = plainly_some(rms)
    return (
        finite, scale, allowed, torch.maximum(PEAK * allowed, KAPPA * peak),
        0.0 if typical is None else float(typical),
    )  # fmt: skip


@settings(deadline=None)
@given(
    LARGER,
    st.sampled_from([torch.float64, torch.float32, torch.float16]),
    st.integers(0, 9),
    st.sampled_from([None, math.inf, math.nan, 1e300]),
    st.sampled_from(["all", "none", "few"]),
    st.sampled_from([1 << 20, 512]),
)
def test_a_budget_is_what_its_definition_says(shape, dtype, seed, odd, off, slab):
    truth = values(shape, torch.float64, seed)
    reference = truth.to(dtype)
    if off == "none":
        truth = reference.double()
    elif off == "few":
        truth = torch.where(values(shape, torch.float64, seed + 1) > 1.5, truth, reference.double())
    if odd is not None:
        truth.view(-1)[-1] = odd
        reference.view(-1)[0] = (
            odd if dtype is torch.float64 else float(torch.tensor(odd).to(dtype))
        )
    arithmetic = Arithmetic(accumulation="ieee", terms=1, even=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "_SLAB", slab)
        budget = output_budget(reference, truth, arithmetic)
    found = (budget.finite, budget.scale, budget.rms, budget.peak, budget.typical)
    for one, other in zip(found, plainly_budget(reference, truth, arithmetic), strict=True):
        torch.testing.assert_close(one, other, rtol=SUMS, atol=0, equal_nan=True)
    block = block_length(truth.shape)
    _, largest = error_blocks(reference, truth, block)
    _, plain = plainly_blocks(reference.double().reshape(-1) - truth.reshape(-1), block)
    assert torch.equal(largest, plain)  # no sums: to the last bit
