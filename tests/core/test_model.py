"""Requests to models.

Invariants:
1. A request is for one answer of the configured model, unless it says otherwise.
2. Its key tells apart all that a model can, and nothing else.
"""

from dataclasses import replace

import pytest

from evolve.core.model import Message, ModelRequest, Sampling, Usage, conversation

REQUEST = ModelRequest(messages=(Message("system", "Be brief."), Message("user", "Faster?")))


def test_a_request_is_for_one_answer_unless_it_says_otherwise():
    assert REQUEST.samples == 1
    assert (REQUEST.model, REQUEST.max_tokens, REQUEST.sampling) == (None, None, Sampling())


@pytest.mark.parametrize(
    "change",
    [
        {"messages": REQUEST.messages[:1]},
        {"messages": REQUEST.messages[::-1]},
        {"messages": (Message("user", "Be brief."), *REQUEST.messages[1:])},
        {"model": "planner"},
        {"max_tokens": 100},
        {"sampling": Sampling(temperature=0.5)},
        {"sampling": Sampling(seed=1)},
        {"sampling": Sampling(stop=("END",))},
    ],
)
def test_requests_that_a_model_can_tell_apart_have_keys_of_their_own(change):
    assert replace(REQUEST, **change).key != REQUEST.key


@pytest.mark.parametrize("change", [{"samples": 3}, {"purpose": "repair"}, {"memo": {"at": 1}}])
def test_what_is_not_sent_is_no_part_of_the_key(change):
    assert replace(REQUEST, **change).key == REQUEST.key


def test_a_conversation_is_one_text_with_each_message_under_its_role():
    assert conversation(REQUEST) == "<!-- system -->\n\nBe brief.\n\n<!-- user -->\n\nFaster?\n"


def test_the_tokens_of_a_call_are_those_of_the_prompt_and_of_the_answer():
    assert Usage(prompt=30, completion=20, cached=10, reasoning=5).total == 50
