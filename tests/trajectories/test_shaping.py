"""From scores to what a trainer takes, against values worked by hand:

1. Each shaping has the value of its formula; the arithmetic stands beside it.
2. What is not known enters no sum, no mean and no count, and stays unknown.
3. The order of the members of a group does not matter.
"""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.trajectories.rewards import Tree, keep_probability, keeps_match, pipeline
from evolve.trajectories.rewards.shaping import SHAPINGS

BY_NAME = {one.name: one for one in SHAPINGS}
LINE = Tree(parents=(-1, 0, 1), groups=(0, 1, 2))


def group(size: int) -> Tree:
    """Answers to one prompt."""
    return Tree(parents=(-1,) * size, groups=(0,) * size)


def shaped(name: str, scores, tree) -> list[float | None]:
    return list(BY_NAME[name].apply(scores, tree))


def test_kevins_return_is_the_discounted_sum_of_this_and_later_turns() -> None:
    # turn 3: 2.0; turn 2: 0 + 0.4 * 2.0 = 0.8; turn 1: 1.3 + 0.4 * 0.8 = 1.62
    assert shaped("discounted@1", (1.3, 0.0, 2.0), LINE) == pytest.approx([1.62, 0.8, 2.0])


def test_a_later_penalty_lowers_the_return() -> None:
    # 1 + 0.4 * (-1 + 0.4 * -1) = 1 - 0.56
    assert shaped("discounted@1", (1.0, -1.0, -1.0), LINE) == pytest.approx([0.44, -1.4, -1.0])


def test_dr_kernels_return_is_not_discounted() -> None:
    assert shaped("return@1", (3.9, 0.0, 4.8), LINE) == pytest.approx([8.7, 4.8, 4.8])


def test_in_a_tree_the_best_way_on_counts() -> None:
    tree = Tree(parents=(-1, 0, 0, 2), groups=(0, 1, 1, 2))
    # leaves 3.0 and 1.0; step 2: 0.5 + 1.0 = 1.5; step 0: 1.0 + max(3.0, 1.5)
    assert shaped("return@1", (1.0, 3.0, 0.5, 1.0), tree) == [4.0, 3.0, 1.5, 1.0]


def test_an_unknown_turn_does_not_cut_the_line() -> None:
    # turn 2 is unknown: 1.0 + 0.4 * (0.4 * 2.0) = 1.32
    assert shaped("discounted@1", (1.0, None, 2.0), LINE) == [pytest.approx(1.32), None, 2.0]
    assert shaped("discounted@1", (1.0, None, None), LINE) == [1.0, None, None]


def test_trloo_leaves_the_sample_itself_out_of_the_mean() -> None:
    # 1 - (2 + 6) / 2 = -3; 2 - (1 + 6) / 2 = -1.5; 6 - (1 + 2) / 2 = 4.5
    assert shaped("trloo@2", (1.0, 2.0, 6.0), group(3)) == pytest.approx([-3.0, -1.5, 4.5])


def test_trloo_compares_turns_of_rollouts_that_began_with_the_same_prompt() -> None:
    # Turn 1 of two rollouts, then turn 2, whose prompts differ: 4 - 2, 2 - 4, 3 - 0, 0 - 3
    rollouts = Tree(parents=(-1, -1, 0, 1), groups=(0, 0, 1, 2))
    assert shaped("trloo@2", (4.0, 2.0, 3.0, 0.0), rollouts) == [2.0, -2.0, 3.0, -3.0]
    # From a seed, turns are counted from there: 4 - 2, 2 - 4
    seeded = Tree(parents=(-1, 0, 0), groups=(0, 1, 2))
    assert shaped("trloo@2", (1.0, 4.0, 2.0), seeded) == [1.0, 2.0, -2.0]


def test_a_lone_sample_keeps_its_score() -> None:
    assert shaped("trloo@2", (2.0,), group(1)) == [2.0]
    assert shaped("trloo@2", (2.0, None), group(2)) == [2.0, None]
    assert shaped("grpo@1", (2.0, None), group(2)) == [2.0, None]


def test_grpo_divides_by_the_standard_deviation() -> None:
    # mean 3, variance ((-2)^2 + (-1)^2 + 3^2) / 2 = 7; (1 - 3) / sqrt(7) = -0.7559
    found = shaped("grpo@1", (1.0, 2.0, 6.0), group(3))
    assert found == pytest.approx([-0.75593, -0.37796, 1.13389], abs=1e-4)
    assert shaped("grpo@1", (2.0, 2.0), group(2)) == [0.0, 0.0]


def test_groups_do_not_mix() -> None:
    tree = Tree(parents=(-1,) * 4, groups=(7, 9, 7, 9))
    assert shaped("trloo@2", (1.0, 10.0, 3.0, 30.0), tree) == [-2.0, -20.0, 2.0, 20.0]


def test_spikes_are_clipped_at_one_and_a_half_deviations() -> None:
    # mean 3, deviations -2 (4 times) and 8: sigma = sqrt((4 * 4 + 64) / 5) = 4;
    # -2 / 4 = -0.5, 8 / 4 = 2 is clipped to 1.5
    found = shaped("smoothed@1", (1.0, 1.0, 1.0, 1.0, 11.0), group(5))
    assert found == pytest.approx([-0.5, -0.5, -0.5, -0.5, 1.5])
    assert shaped("smoothed@1", (2.0, 2.0), group(2)) == [0.0, 0.0]


@pytest.mark.parametrize("name", sorted(BY_NAME))
@given(scores=st.lists(st.none() | st.floats(-5, 5), min_size=1, max_size=6))
def test_what_is_not_known_stays_so_and_changes_nothing(name: str, scores) -> None:
    known = [score for score in scores if score is not None]
    whole = shaped(name, scores, group(len(scores)))
    assert [one is None for one in whole] == [score is None for score in scores]
    alone = shaped(name, known, group(len(known)))
    assert [one for one in whole if one is not None] == pytest.approx(alone)


@given(scores=st.lists(st.floats(-5, 5), min_size=2, max_size=5))
def test_trloo_is_grpo_without_its_bias_and_its_scale(scores: list[float]) -> None:
    # (N / (N - 1)) (r - mean) = r - mean of the others
    count, mean = len(scores), math.fsum(scores) / len(scores)
    expected = [(score - mean) * count / (count - 1) for score in scores]
    assert shaped("trloo@2", scores, group(count)) == pytest.approx(expected, abs=1e-9)


def test_shapings_follow_each_other() -> None:
    plan = pipeline("dr_kernel@1+return@1+trloo@2")
    assert plan.name == "dr_kernel@1+return@1+trloo@2"
    tree = Tree(parents=(-1, -1, 0), groups=(0, 0, 1))
    # returns 1 + 4 = 5, 2 and 4; then 5 - 2, 2 - 5, and 4 alone at its turn
    assert list(plan.shape((1.0, 2.0, 4.0), tree)) == [3.0, -3.0, 4.0]


@pytest.mark.parametrize(
    ("coverage", "kept"),
    [(0.0, 0.0), (0.3, 0.0), (0.34, 0.4), (0.4, 1.0), (0.9, 1.0), (None, None)],
)
def test_correct_turns_are_kept_by_their_share_of_device_time(coverage, kept) -> None:
    # (0.34 - 0.3) / 0.1 = 0.4
    assert keep_probability(coverage, correct=True) == pytest.approx(kept)
    assert keep_probability(coverage, correct=False) == 1.0


def test_a_sequence_is_kept_where_training_and_rollout_agree() -> None:
    rollout = (-1.0, -2.0, -0.5)
    assert keeps_match(rollout, rollout) is True
    # the mean log ratio is +0.0005, its exponential 1.0005
    assert keeps_match((-1.0, -2.0, -0.4985), rollout) is True
    # +0.002: 1.002 is above 1.001; -0.002: 0.998 is below 0.999
    assert keeps_match((-1.0, -2.0, -0.494), rollout) is False
    assert keeps_match((-1.0, -2.0, -0.506), rollout) is False


def test_one_impossible_token_rejects_a_sequence() -> None:
    rollout = (-1.0,) * 20_000
    training = (-1.0 - 9.3, *(-1.0 + 9.3 / 19_999,) * 19_999)  # e^-9.3 = 0.00009 < 0.0001
    assert math.isclose(math.fsum(training), math.fsum(rollout))
    assert keeps_match(training, rollout) is False
    assert keeps_match(training, rollout, veto=1e-5) is True


def test_without_log_probabilities_nobody_can_tell() -> None:
    assert keeps_match(None, (-1.0,)) is None
    assert keeps_match((-1.0,), ()) is None
    with pytest.raises(ValueError, match="shorter"):
        keeps_match((-1.0, -1.0), (-1.0,))


@given(scores=st.permutations([0.0, 1.0, 2.0, 5.0]))
def test_the_order_within_a_group_does_not_matter(scores: list[float]) -> None:
    for name, ordered in itertools.product(BY_NAME, [sorted(scores)]):
        one = dict(zip(scores, shaped(name, scores, group(4)), strict=True))
        other = dict(zip(ordered, shaped(name, ordered, group(4)), strict=True))
        assert one == pytest.approx(other)
