"""A person's changes of a search, and what holds after them.

Invariants:
1. Of a note and of the states the newest holds; a program is pinned, banned or neither.
2. Only changes that the search has taken count.
3. A replay repeats all of them but pauses, and the continuation of a run that was ended.
"""

import pytest

from evolve.core.run_store.steering import (
    Steering,
    SteeringEvent,
    SteeringKind,
    repeatable,
    steered,
)


def events(*changes: str) -> list[SteeringEvent]:
    """Changes as `kind value`, each taken at the next step."""
    return [
        SteeringEvent(id=step, kind=SteeringKind(kind), value=value, user="ann", sequence=step)
        for step, (kind, _, value) in enumerate(change.partition(" ") for change in changes)
    ]


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ((), Steering()),
        (("note faster", "note shorter"), Steering(note="shorter")),
        (("note faster", "note "), Steering()),
        (("pin a", "pin b"), Steering(pinned=("a", "b"))),
        (("pin a", "pin b", "pin a"), Steering(pinned=("b", "a"))),
        (("pin a", "ban a"), Steering(banned=frozenset("a"))),
        (("ban a", "pin a"), Steering(pinned=("a",))),
        (("pin a", "ban b", "release a", "release b"), Steering()),
        (("program text", "budget evaluations=5"), Steering()),
    ],
)
def test_the_newest_change_of_a_kind_holds(changes, state):
    assert steered(events(*changes)) == state


def test_a_search_pauses_continues_and_ends_with_the_name_of_the_one_who_said_so():
    assert not steered(events("pin a")).is_paused
    paused = steered(events("pause"))
    assert (paused.is_paused, paused.has_ended, paused.by) == (True, False, "ann")
    assert not steered(events("pause", "continue")).is_paused
    assert steered(events("pause", "end")).has_ended


def test_a_change_that_the_search_has_not_taken_does_not_count():
    waiting = SteeringEvent(id=1, kind=SteeringKind.BAN, value="a")
    assert steered([waiting]) == Steering()
    assert list(repeatable([waiting])) == []


@pytest.mark.parametrize(
    ("changes", "repeated"),
    [
        (("pin a", "pause", "note b", "continue"), ["pin", "note"]),
        (("end", "pin a", "continue"), ["end", "pin", "continue"]),
        (("end", "continue", "pause", "continue"), ["end", "continue"]),
    ],
)
def test_a_replay_does_not_wait_but_goes_on_after_an_end(changes, repeated):
    assert [event.kind for event in repeatable(events(*changes))] == repeated


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("pin 0123456789abcdef", "pin program 01234567"),
        ("program one\ntwo", "program of 2 lines"),
        ("note ", "note taken back"),
        ("note use fewer registers", "note use fewer registers"),
        ("budget wall_time=30m", "budget wall_time=30m"),
        ("pause", "pause"),
    ],
)
def test_a_change_is_said_in_a_few_words(change, text):
    assert events(change)[0].text == text
