"""A request that is asked in another text while nothing has answered it.

Invariants:
1. One text stands at a time; a reply to an earlier one makes that one stand again.
2. The parents of the ticket are those of the text that stands, and are counted so.
3. All texts are kept, with the parents that they were about.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from evolve.core.errors import StoreError
from evolve.core.model import (
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
    Usage,
)
from evolve.core.protocols import Failed, Proposal
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, program, take_step

FIRST = ModelRequest(messages=(Message("user", "Improve on the first."),))
SECOND = ModelRequest(messages=(Message("user", "Improve on the second."),))
REPLY = ModelReply(status=CallStatus.COMPLETED, text="Here.", usage=Usage(prompt=3, completion=4))
ONE, TWO = (program(1).digest,), (program(2).digest,)


@pytest.fixture
def run(store: Store) -> int:
    found, archive = new_run(store).id, SmallArchive()
    for number in (1, 2):
        take_step(store, found, archive, number, judged=evaluation(1.0 + number / 10))
    return found


@pytest.fixture
def asked(store: Store, run: int):
    (ticket,) = store.request(run, "rewrite", ONE, FIRST, "some/model")
    return ticket


def asked_of(store: Store, run: int) -> list[int]:
    """How many tickets each of the two programs has as their parent."""
    return [store.visits(run, digest)[digest].asked for digest in (*ONE, *TWO)]


def test_another_text_stands_with_its_parents(store, run, asked):
    assert asked_of(store, run) == [1, 0]
    found = store.recompose(asked, TWO, SECOND)
    assert (found.request, found.parents, found.id) == (SECOND, TWO, asked.id)
    assert store.ticket(run, found.sequence) == found
    assert asked_of(store, run) == [0, 1]
    assert store.texts(found, 0) == [FIRST, SECOND]
    assert store.texts(found, 1) == []
    alone = store.recompose(found, (), replace(SECOND, memo={"plan": 2}, max_tokens=7))
    assert (alone.parents, asked_of(store, run)) == ((), [0, 0])


def test_a_text_that_was_asked_before_stands_again(store, run, asked):
    changed = store.recompose(asked, TWO, SECOND)
    again = store.recompose(changed, TWO, FIRST)
    assert (again.request, again.parents, asked_of(store, run)) == (FIRST, ONE, [1, 0])
    assert store.recompose(again, TWO, FIRST) == again
    assert store.texts(again, 0) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("key", "parents", "text"),
    [("", TWO, SECOND), (SECOND.key, TWO, SECOND), (FIRST.key, ONE, FIRST)],
)
def test_a_reply_makes_the_text_stand_that_it_answers(store, run, asked, key, parents, text):
    found = store.answer(store.recompose(asked, TWO, SECOND), REPLY, key=key)
    assert (found.parents, found.exchanges[0].request) == (parents, text)
    assert found.exchanges[0].reply.text == REPLY.text
    assert asked_of(store, run) == ([1, 0] if parents == ONE else [0, 1])


def rounds(dump) -> list[dict[str, Any]]:
    """Those of the one ticket that has asked a model."""
    found = [line["rounds"] for line in map(json.loads, dump) if "rounds" in line]
    return found[0]


def test_the_dump_has_the_texts_for_which_another_stands(store, run, asked):
    store.recompose(asked, TWO, SECOND)
    lines = rounds(store.dump(run))
    assert [line.get("replaced") for line in lines] == [list(ONE), None]
    messages = [["user", "Improve on the first."]]
    assert (lines[0]["key"], lines[0]["messages"]) == (FIRST.key, messages)
    (kept,) = rounds(store.dump(run, canonical=True))
    assert (kept["key"], "messages" in kept) == (SECOND.key, False)


def test_the_dump_has_the_reply_of_each_answered_round(store, run, asked):
    store.propose(store.answer(asked, REPLY), SECOND)
    answered, open_one = rounds(store.dump(run))
    assert (answered["key"], answered["reply"]) == (FIRST.key, REPLY.to_json())
    assert (open_one["key"], "reply" in open_one) == (SECOND.key, False)
    assert "latency_s" not in rounds(store.dump(run, canonical=True))[0]["reply"]


def test_only_the_first_request_is_asked_anew_and_only_before_its_reply(store, run, asked):
    ticket = store.answer(asked, REPLY)
    with pytest.raises(StoreError, match="it is replied, not asked"):
        store.recompose(ticket, TWO, SECOND)
    ticket = store.propose(ticket, SECOND)
    with pytest.raises(StoreError, match="ticket 2 of run 'first' has no first request open"):
        store.recompose(ticket, TWO, FIRST)
    plain = store.ask(run, "tune", ())
    with pytest.raises(StoreError, match="ticket 3 of run 'first' has no first request open"):
        store.recompose(plain, TWO, FIRST)


def test_a_request_is_overtaken_by_verdicts(store, run, asked):
    assert not store.is_overtaken(asked)
    take_step(store, run, SmallArchive(), 3)
    assert store.is_overtaken(asked)
    assert not store.is_overtaken(store.recompose(asked, TWO, SECOND))


def test_tokens_are_those_charged_for_each_step(store, run, asked):
    ticket = store.propose(store.answer(asked, REPLY), SECOND)
    store.begin_call(ticket, Reservation(tokens=100, usd=0.5))
    refused = store.request(run, "rewrite", (), FIRST, "some/model")[0]
    call = store.begin_call(refused, Reservation(tokens=100, usd=0.5))
    store.end_call(call, ModelReply(status=CallStatus.UNAVAILABLE, error="busy"))
    assert store.tokens(run) == {2: 107}


def test_models_behind_a_program_are_those_of_its_ancestors_too(store, run, asked):
    planned = store.propose(store.answer(asked, REPLY), replace(SECOND, model="planner"))
    proposal = Proposal(program=program(4), parents=ONE)
    made = store.propose(store.answer(planned, REPLY), proposal, ReplyStatus.PROGRAM)
    store.start_evaluation(made)
    store.tell(store.evaluated(made, evaluation(1.5)), None, None)
    other = store.request(run, "rewrite", (), replace(FIRST, model="unused"), "some/model")[0]
    store.propose(store.answer(other, REPLY), Failed("no code"), ReplyStatus.NO_CODE)
    take_step(store, run, SmallArchive(), 5, parents=(program(4).digest,))
    assert store.models_behind(program(5).digest) == {"planner"}
    assert store.models_behind(program(1).digest) == frozenset()
