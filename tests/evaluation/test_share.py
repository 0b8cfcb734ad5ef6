"""One search's share of a judge: together they keep it busy, and none asks far ahead."""

from hypothesis import given
from hypothesis import strategies as st

from evolve.evaluation.share import Share
from evolve.testing.synthetic import SyntheticEvaluator


@given(slots=st.integers(1, 64), searches=st.integers(0, 40), taken=st.integers(0, 70))
def test_shares_cover_what_is_free_of_the_judge_and_are_one_larger_at_most(slots, searches, taken):
    share = Share(SyntheticEvaluator(slots=slots), lambda: searches, lambda: taken).slots
    free = max(1, slots - taken)
    assert 1 <= share <= free
    assert share * max(1, searches) >= free
    assert searches < 2 or (share - 2) * searches < free


def test_a_search_that_has_the_judge_for_itself_has_all_of_it():
    judge, others = SyntheticEvaluator(slots=16), 8
    share = Share(judge, lambda: others, lambda: 0)
    assert share.slots == 3
    others = 1
    assert share.slots == 16
