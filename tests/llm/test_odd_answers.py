"""Answers that arrive whole, and say something odd about themselves.

Invariants:
1. What was answered is kept, whatever is wrong with what comes beside it.
2. A count that cannot be is no count, and the call is charged as reserved.
"""

import pytest

from evolve.core.model import CallStatus, TokenTrace, Usage
from evolve.testing.model_server import Answer
from tests.llm.conftest import ask, endpoint

PRICE = {"prompt": 1, "completion": 1}


@pytest.mark.parametrize("ids", [3, "ab", {"a": 1}, [None], ["a"], [[1, 2]], [1.5]])
def test_token_ids_that_are_none_are_left_out(serve, ids):
    reply = ask(endpoint(serve(Answer("text", token_ids=ids)), trace=True))
    assert (reply.status, reply.text) == (CallStatus.COMPLETED, "text")
    assert reply.trace == TokenTrace(logprobs=(-0.5,))


def test_a_refusal_beside_an_empty_answer_is_one(serve):
    reply = ask(endpoint(serve(Answer(None, refusal="I will not."))))
    assert (reply.status, reply.text) == (CallStatus.REFUSED, "I will not.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("prompt", "said"), [(0, 3), (3, 0), (0, 0)])
def test_a_prompt_or_an_answer_of_no_tokens_was_not_counted(serve, prompt, said, stream):
    counts = {"prompt_tokens": prompt, "completion_tokens": said, "total_tokens": prompt + said}
    reply = ask(endpoint(serve(Answer("text", usage=counts)), stream=stream, price=PRICE))
    assert (reply.text, reply.usage, reply.cost_usd) == ("text", None, None)


def test_an_empty_answer_may_have_no_tokens(serve):
    counts = {"prompt_tokens": 3, "completion_tokens": 0, "total_tokens": 3}
    reply = ask(endpoint(serve(Answer("", usage=counts)), price=PRICE))
    assert (reply.status, reply.usage) == (CallStatus.EMPTY, Usage(prompt=3, completion=0))
    assert reply.cost_usd == pytest.approx(3e-6)
