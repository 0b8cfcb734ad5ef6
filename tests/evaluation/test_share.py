"""One search's share of a judge: together they keep it busy, and none asks far ahead."""

from hypothesis import given
from hypothesis import strategies as st

from evolve.evaluation.share import Share
from evolve.testing.synthetic import SyntheticEvaluator


@given(slots=st.integers(1, 64), searches=st.integers(0, 40))
def test_shares_cover_the_judge_and_are_one_larger_at_most(slots, searches):
    share = Share(SyntheticEvaluator(slots=slots), lambda: searches).slots
    assert 1 <= share <= slots
    assert share * max(1, searches) >= slots
    assert searches < 2 or (share - 2) * searches < slots


def test_a_search_that_has_the_judge_for_itself_has_all_of_it():
    judge, others = SyntheticEvaluator(slots=16), 8
    share = Share(judge, lambda: others)
    assert share.slots == 3
    others = 1
    assert share.slots == 16
