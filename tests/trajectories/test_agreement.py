"""How far two rewards agree.

Invariants:
1. Only steps that both can score are compared, by rank, equal scores sharing theirs.
2. Steps that both rank alike are no difference.
"""

import pytest

from evolve.trajectories.rewards.agreement import Agreement, Difference, agreement


def test_equal_orders_agree_whatever_the_scores():
    found = agreement([0.1, 0.5, 9.0], [1.0, 2.0, 3.0], 5)
    assert (found.count, found.differences) == (3, ())
    assert found.correlation == pytest.approx(1.0)
    assert agreement([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], 5).correlation == pytest.approx(-1.0)


def test_the_most_different_ranks_come_first_as_shares_of_the_length():
    found = agreement([1.0, 2.0, 3.0, 4.0, None], [4.0, 2.0, 3.0, 1.0, 9.0], 5)
    assert found.count == 4
    assert found.differences == (Difference(0, 0.0, 1.0), Difference(3, 1.0, 0.0))
    assert agreement([1.0, 2.0], [2.0, 1.0], 1).differences == (Difference(0, 0.0, 1.0),)


def test_places_are_those_in_the_lists():
    found = agreement([None, 1.0, 2.0], [5.0, 2.0, 1.0], 5)
    assert [each.place for each in found.differences] == [1, 2]


def test_equal_scores_share_the_mean_of_their_ranks():
    found = agreement([1.0, 1.0, 2.0], [1.0, 2.0, 3.0], 5)
    assert found.differences == (Difference(0, 0.25, 0.0), Difference(1, 0.25, 0.5))


@pytest.mark.parametrize("scores", [[], [1.0], [None, 1.0], [2.0, 2.0]])
def test_scores_that_rank_nothing_have_no_correlation(scores):
    others = list(range(len(scores)))
    count = len([score for score in scores if score is not None])
    found = agreement(scores, others, 5)
    assert (found.count, found.correlation) == (count, None)
    assert agreement([], [], 5) == Agreement(0, None, ())
