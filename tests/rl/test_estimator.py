"""Advantages with masked rows, against values worked out by hand.

Invariant: the advantages of a group are those of the group without its masked rows.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.rl import TooManyMasked
from evolve.rl.estimator import masked_grpo

ANY = {"most_masked": 1.0, "most_unscored": 1.0}


def rows(scores: list[float], tokens: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Rewards on the last token of each row, and a mask of all tokens."""
    rewards = torch.zeros(len(scores), tokens)
    rewards[:, -1] = torch.tensor(scores)
    return rewards, torch.ones(len(scores), tokens, dtype=torch.long)


def advantages(scores: list[float], prompts: list[str], **config: object) -> list[float]:
    spread, _ = masked_grpo(*rows(scores), prompts, ANY | config)
    return spread[:, 0].tolist()


def test_a_masked_row_has_no_part_in_its_groups_mean_and_spread():
    """Of (1, 3, masked): mean 2, standard deviation sqrt(2), so -1/sqrt(2), 1/sqrt(2), 0."""
    found = advantages([1.0, 3.0, math.nan], ["p", "p", "p"])
    assert found == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 0.0], abs=1e-5)


def test_groups_do_not_mix():
    """(1, 3) and (10, 14) without scaling: -1, 1 and -2, 2."""
    found = advantages([1.0, 10.0, 3.0, 14.0], [*"abab"], norm_adv_by_std_in_grpo=False)
    assert found == pytest.approx([-1.0, -2.0, 1.0, 2.0])


def test_a_lone_row_keeps_its_score():
    assert advantages([2.0, math.nan], ["a", "a"]) == pytest.approx([2.0, 0.0])


def test_a_row_none_of_whose_tokens_is_trained_on_is_masked():
    rewards, mask = rows([1.0, 3.0, 0.0])
    mask[2] = 0
    spread, _ = masked_grpo(rewards, mask, ["p"] * 3, ANY | {"norm_adv_by_std_in_grpo": False})
    assert spread[:, 0].tolist() == pytest.approx([-1.0, 1.0, 0.0])


def test_no_nan_is_left_and_masked_rows_are_not_trained_on():
    rewards, mask = rows([1.0, math.nan])
    masked_grpo(rewards, mask, ["p", "p"], ANY)
    assert not rewards.isnan().any()
    assert mask.sum(dim=-1).tolist() == [3, 0]


def test_rows_without_a_score_are_masked_and_not_taken_for_our_own_fault():
    scores = [math.inf] * 40 + [1.0] * 60
    spread, _ = masked_grpo(*rows(scores), ["p"] * 100)
    assert not spread.any()  # all that are left are alike
    with pytest.raises(TooManyMasked, match="unscored: 51 of 100"):
        masked_grpo(*rows([math.inf] * 51 + [1.0] * 49), ["p"] * 100)


def test_more_than_one_row_in_a_hundred_stops_the_training():
    masked_grpo(*rows([math.nan] + [1.0] * 99), ["p"] * 100)
    with pytest.raises(TooManyMasked, match="2 of 100"):
        masked_grpo(*rows([math.nan] * 2 + [1.0] * 98), ["p"] * 100)


@given(
    st.lists(st.floats(-10, 10, width=16), min_size=2, max_size=8),
    st.sets(st.integers(0, 7)),
    st.booleans(),
)
def test_masking_is_as_if_the_rows_had_not_been_sampled(scores, masked, scaled):
    kept = [score for n, score in enumerate(scores) if n not in masked]
    shown = [math.nan if n in masked else score for n, score in enumerate(scores)]
    found = advantages(shown, ["p"] * len(scores), norm_adv_by_std_in_grpo=scaled)
    without = advantages(kept, ["p"] * len(kept), norm_adv_by_std_in_grpo=scaled) if kept else []
    assert [x for n, x in enumerate(found) if n not in masked] == pytest.approx(without, abs=1e-5)
    assert all(found[n] == 0 for n in masked if n < len(scores))
