"""How many calls run ahead: worked out by hand, by Little's law."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.search.execution.llm_concurrency import BACKLOG, TYPICAL_CALL_S, LLMConcurrency, Rounds


def pace(calls=100, slots=1, *, call_s=(), programs=0, judged_s=()) -> LLMConcurrency:
    found = LLMConcurrency(calls, slots)
    for seconds in call_s:
        found.called(seconds)
    for _ in range(programs):
        found.proposed()
    for seconds in judged_s:
        found.judged(seconds)
    return found


def test_all_calls_that_are_allowed_run_until_a_judgement_has_ended():
    assert pace(7, 2, call_s=[30.0], programs=1).ahead == 7 + BACKLOG * 2


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        # a call of 30 s beside judgements of 10 s: three calls
        ({"call_s": [30.0], "programs": 1, "judged_s": [10.0]}, 3),
        ({"call_s": [30.0], "programs": 1, "judged_s": [8.0, 12.0]}, 3),
        # two slots take twice as many
        ({"slots": 2, "call_s": [30.0], "programs": 1, "judged_s": [10.0]}, 6),
        # every second call brings a program
        ({"call_s": [30.0, 30.0], "programs": 1, "judged_s": [10.0]}, 6),
        # a part of a call is a call
        ({"call_s": [31.0], "programs": 1, "judged_s": [10.0]}, 4),
        # calls without any program
        ({"call_s": [20.0, 10.0], "judged_s": [10.0]}, 3),
        # before a call has ended
        ({"judged_s": [10.0]}, int(TYPICAL_CALL_S / 10)),
        # no more than are allowed
        ({"calls": 5, "call_s": [300.0], "programs": 1, "judged_s": [1.0]}, 5),
    ],
)
def test_as_many_calls_run_as_keep_the_judge_busy(given, needed):
    assert pace(**given).ahead == needed + BACKLOG * given.get("slots", 1)


def test_a_call_takes_what_calls_took_on_average():
    assert pace().call_s == 0
    assert pace(call_s=[10.0, 20.0, 60.0]).call_s == 30


@given(st.integers(1, 50), st.integers(1, 8), st.lists(st.floats(0.1, 100), min_size=1, max_size=5))
def test_it_never_asks_for_more_than_allowed_nor_leaves_the_judge_alone(calls, slots, judged):
    ahead = pace(calls, slots, call_s=[10.0], programs=1, judged_s=judged).ahead
    assert BACKLOG * slots < ahead <= calls + BACKLOG * slots


def asked(rounds: Rounds, under_way: int) -> bool:
    may = rounds.may_ask(under_way)
    if may:
        rounds.asked()
    return may


def test_a_round_is_asked_for_only_when_all_of_the_last_one_are_judged():
    rounds = Rounds(2)
    assert [asked(rounds, under_way) for under_way in (0, 1, 2, 1, 0, 1, 2)] == [
        True, True, False, False, True, True, False,
    ]  # fmt: skip


def test_a_round_of_none_never_waits():
    rounds = Rounds(None)
    assert all(asked(rounds, under_way) for under_way in (0, 1, 2, 30))


def test_nothing_is_asked_for_before_what_is_under_way_is_judged():
    assert not Rounds(2).may_ask(1)
