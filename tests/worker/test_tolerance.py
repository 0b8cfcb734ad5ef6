"""Errors by blocks: the same numbers however many elements are looked at together.

Invariants: the pieces that a comparison is made in change nothing; zeros that are only meant are
those that are there; an outcome that did not move has no motion.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolve.worker.correctness import tolerance as blocks
from evolve.worker.correctness.tolerance import block_length, error_blocks, motion_blocks, no_motion

SHAPES = st.lists(st.integers(1, 40), max_size=3).map(tuple)
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
