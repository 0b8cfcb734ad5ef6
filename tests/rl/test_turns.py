"""Turn-level advantages and mismatch rejection, against values worked out by hand.

Invariants: a turn's advantage is its return minus the mean return of the others at that turn; what
has no score has no part; the same numbers as the search's own `trloo@2` and `keeps_match`.
"""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evolve.rl import TooManyMasked
from evolve.rl.estimator import NO_VERDICT, masked_trloo
from evolve.rl.turns import Mismatch, spread, trloo, turn_scores, turns_of
from evolve.trajectories.rewards import Tree, keeps_match, pipeline

ANY = {"most_masked": 1.0, "most_unscored": 1.0}
SCORES = st.floats(-5, 5, width=16)


def test_a_turn_is_compared_with_the_same_turn_of_the_other_rollouts():
    """Scores (3, 1) and (2, 0): returns 4, 1 and 2, 0, so that 4 - 2, 1 - 0 and their negatives."""
    assert trloo([[3, 1], [2, 0]], "pp") == [[2, 1], [-2, -1]]


def test_the_rollouts_of_the_audit():
    """Returns (4, 2) and (3, 0): Dr. Kernel has 1, 2 and -1, -2."""
    assert trloo([[2, 2], [3, 0]], "pp") == [[1, 2], [-1, -2]]


def test_the_mean_leaves_the_sample_itself_out():
    """0, 1, 2, 5: the others' means are 8/3, 7/3, 2 and 1."""
    found = trloo([[0], [1], [2], [5]], "pppp")
    assert [turn for (turn,) in found] == pytest.approx([-8 / 3, -4 / 3, 0, 4])


def test_a_later_turn_counts_less_with_a_discount():
    """Returns 1 + 0.5 * 4 = 3 beside 2 + 0.5 * 2 = 3, and 4 beside 2."""
    assert trloo([[1, 4], [2, 2]], "pp", gamma=0.5) == [[0, 2], [0, -2]]


def test_rollouts_of_other_prompts_and_lengths_are_no_comparison():
    """The third turn of the first is alone, so that its return stays; `q` is alone throughout."""
    assert trloo([[1, 1, 5], [0, 1], [9]], "ppq") == [[6, 5, 5], [-6, -5], [9]]


def test_a_turn_that_brought_nothing_hands_on_what_came_later():
    """(None, 3) beside (1, 1): nothing is compared with the first one's first turn."""
    assert trloo([[None, 3], [1, 1]], "pp") == [[0, 2], [2, -2]]


@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_a_rollout_without_a_score_has_no_part(unknown):
    assert trloo([[3, unknown], [2, 0], [1, 1]], "ppp") == [[0, 0], [0, -1], [0, 1]]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.lists(SCORES, min_size=1, max_size=4)), max_size=8)
)
def test_it_is_what_the_search_computes_of_its_own_steps(rollouts):
    """A search whose lines began with the same prompts."""
    parents, groups, scores = [], [], []
    for prompt, line in rollouts:
        parents += [-1, *range(len(scores), len(scores) + len(line) - 1)]
        groups += [ord(prompt), *range(1000 + len(scores), 1000 + len(scores) + len(line) - 1)]
        scores += line
    search = pipeline("kevin@1+return@1+trloo@2").shape(scores, Tree(parents, groups))
    found = trloo([line for _, line in rollouts], [prompt for prompt, _ in rollouts])
    assert [value for turns in found for value in turns] == pytest.approx(search, abs=1e-9)


@given(st.lists(st.lists(SCORES, min_size=2, max_size=2), min_size=2, max_size=6))
def test_the_advantages_of_a_turn_add_up_to_nothing(rollouts):
    for turn in range(2):
        found = trloo(rollouts, [0] * len(rollouts))
        assert math.fsum(values[turn] for values in found) == pytest.approx(0, abs=1e-9)


MASK = torch.tensor([[1, 1, 0, 0, 1, 0], [1, 0, 1, 1, 1, 1]])


def test_turns_are_the_runs_of_what_the_model_wrote():
    assert turns_of(MASK) == [[(0, 2), (4, 5)], [(0, 1), (2, 6)]]
    assert turns_of(torch.zeros(1, 3)) == [[]]


def test_advantages_of_turns_are_those_of_their_tokens():
    found = spread([[1.0, 2.0], [-1.0, -2.0]], MASK)
    assert found.tolist() == [[1, 1, 0, 0, 2, 0], [-1, 0, -2, -2, -2, -2]]
    with pytest.raises(ValueError, match="row 0 has 2 turns and scores for 1"):
        spread([[1.0], [-1.0, -2.0]], MASK)
    assert spread([[1.0]], torch.zeros(1, 3)).tolist() == [[0, 0, 0]]  # cut off as too long


def test_a_penalty_on_tokens_counts_for_their_turn():
    rewards = torch.tensor([[-0.5, 2.0, 9.0, 0.0, 1.0, 0.0], [0.0] * 6])
    assert turn_scores(rewards, MASK) == [[1.5, 1.0], [0.0, 0.0]]


def test_the_estimator_reads_scores_and_leaves_out_what_is_masked():
    rewards = torch.tensor([[0, 3.0, 0, 0, 1, 0], [2, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, NO_VERDICT]])
    mask = torch.cat([MASK, MASK[:1]])
    found, _ = masked_trloo(rewards, mask, ["p"] * 3, ANY)
    assert found.tolist() == [[2, 2, 0, 0, 1, 0], [-2, 0, -1, -1, -1, -1], [0] * 6]
    assert mask[2].sum() == 0
    assert not rewards.isnan().any()


def test_the_estimator_stops_where_too_much_has_no_verdict():
    rewards = torch.tensor([[0, 3.0, 0, 0, 1, 0], [0, 0, 0, 0, 0, NO_VERDICT]])
    with pytest.raises(TooManyMasked, match="1 of 2 rows"):
        masked_trloo(rewards, MASK.clone(), ["p"] * 2)


def test_rejected_rollouts_do_not_count_as_rows_without_a_score():
    mask = MASK.clone()
    mask[1] = 0
    found, _ = masked_trloo(torch.tensor([[0, 3.0, 0, 0, 1, 0], [2.0, *[0] * 5]]), mask, "pp")
    assert found[0].tolist() == [4, 4, 0, 0, 1, 0]  # alone, with its returns


def keeps(training: list[float], sampling: list[float], mask: list[int]) -> bool:
    rows = torch.tensor([training]), torch.tensor([sampling]), torch.tensor([mask])
    return bool(Mismatch().keeps(*rows).item())


def test_a_rollout_is_kept_whose_tokens_are_as_likely_on_the_whole():
    """Of (+0.0012, -0.0010) the mean is 0.0001; of (+0.0012, +0.0012) it is above log 1.001."""
    assert keeps([-1.0, -2.0], [-1.0012, -1.999], [1, 1])
    assert not keeps([-1.0, -2.0], [-1.0012, -2.0012], [1, 1])
    assert not keeps([-1.0012, -2.0012], [-1.0, -2.0], [1, 1])


def test_one_token_that_the_trained_model_would_hardly_say_rejects_a_rollout():
    """Log 1e-4 is -9.21; the other token makes up for it in the mean."""
    assert keeps([-9.2, 0.0], [0.0, -9.2], [1, 1])
    assert not keeps([-9.3, 0.0], [0.0, -9.3], [1, 1])


def test_only_tokens_that_the_model_wrote_and_that_are_known_count():
    assert keeps([-1.0, -2.0], [-1.0, -9.0], [1, 0])
    assert keeps([-1.0, -2.0], [-1.0, math.nan], [1, 1])
    assert keeps([-1.0], [math.nan], [1])


@given(
    st.lists(
        st.tuples(st.floats(-12, 0, width=32), st.floats(-12, 0, width=32)), min_size=1, max_size=6
    )
)
def test_it_keeps_what_the_search_keeps(pairs):
    training, sampling = (list(side) for side in zip(*pairs, strict=True))
    mean = math.fsum(a - b for a, b in pairs) / len(pairs)
    edges = (math.log(0.999), math.log(1.001), math.log(1e-4))
    near = [abs(mean - edges[0]), abs(mean - edges[1]), *(abs(a - b - edges[2]) for a, b in pairs)]
    if min(near) > 1e-5:  # float32 on one side
        assert keeps(training, sampling, [1] * len(pairs)) == keeps_match(training, sampling)
