"""What a call may cost at most is what is reserved for it before it is sent."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.model import Message, ModelRequest
from evolve.llm.endpoint import Endpoint
from evolve.llm.limits import Gate
from evolve.llm.prices import prompt_bound
from evolve.llm.settings import ModelSettings
from evolve.testing.model_server import Answer
from tests.llm.conftest import endpoint, request

NOWHERE = "http://127.0.0.1:9"


def test_the_prompts_bytes_and_the_longest_answer_are_reserved():
    """Four characters in UTF-8 are eight bytes; a message and the whole take 8 tokens each."""
    asked = request("äöüß", max_tokens=100)
    found = endpoint(NOWHERE, price={"prompt": 2.0, "completion": 8.0}).reserve(asked)
    assert found.tokens == 8 + 8 + 8 + 100
    assert found.usd == pytest.approx((24 * 2.0 + 100 * 8.0) / 1e6)


def test_an_answer_without_a_bound_has_the_models():
    server = endpoint(NOWHERE, max_tokens=700)
    bound = prompt_bound(request().messages)
    assert server.reserve(request(max_tokens=None)).tokens == bound + 700
    assert server.reserve(request(max_tokens=900)).tokens == bound + 900


def test_cached_tokens_that_are_dearer_are_reserved_for():
    price = {"prompt": 2.0, "completion": 8.0, "cached": 3.0}
    found = endpoint(NOWHERE, price=price).reserve(request("", max_tokens=10))
    assert found.usd == pytest.approx((16 * 3.0 + 10 * 8.0) / 1e6)


def test_without_a_price_tokens_are_reserved_and_no_money():
    found = endpoint(NOWHERE, model="openai/unheard-of").reserve(request())
    assert found.usd is None
    assert found.tokens > 1000


@given(st.lists(st.text(max_size=50), min_size=1, max_size=5))
def test_a_longer_conversation_reserves_more(texts):
    server = endpoint(NOWHERE, price={"prompt": 2.0, "completion": 8.0})
    messages = tuple(Message("user", text) for text in texts)
    whole = server.reserve(ModelRequest(messages=messages, model="m", max_tokens=10))
    part = server.reserve(ModelRequest(messages=messages[:-1], model="m", max_tokens=10))
    assert whole.tokens == part.tokens + len(texts[-1].encode("utf-8", "replace")) + 8
    assert whole.usd > part.usd


@pytest.mark.sample(1)
@pytest.mark.parametrize(("max_tokens", "sent"), [(1000, 1), (100, 2)])
def test_a_call_waits_for_room_for_its_prompt_and_its_longest_answer(max_tokens, sent, serve):
    """Two calls of 1000 tokens do not fit into a minute of 1500; two of 100 do."""
    server = serve(lambda _: Answer("x"))
    settings = ModelSettings(model="openai/scripted", api_base=server.api_base)

    async def both() -> int:
        model = Endpoint("scripted", settings, gate=Gate(tokens_per_minute=1500))
        asked = request(max_tokens=max_tokens)
        calls = [asyncio.create_task(model.complete(asked, sample)) for sample in range(2)]
        await asyncio.wait(calls[:sent], timeout=50)
        await asyncio.wait(calls, timeout=1)  # the other one would follow at once
        done = sum(call.done() for call in calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return done

    assert asyncio.run(both()) == sent
