"""Recorded answers: the same questions get the same answers, and no one is asked.

Invariants:
1. A reply comes back equal from its stored form, with every field.
2. A question that was never asked is an error that says so, not a guess.
"""

import asyncio
from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import ModelReply, Sampling
from evolve.llm import LiteLLM, ReplayModel
from evolve.testing.model_server import Answer
from tests.llm.conftest import request

ANSWER = Answer("the answer", reasoning="why", token_ids=True, cached_tokens=1)


def test_a_recorded_conversation_is_answered_again_without_a_server(serve):
    server = serve(lambda asked: replace(ANSWER, text=f"answer {asked.number}"))
    model = LiteLLM(model="openai/scripted", api_base=server.api_base, trace=True)
    asked = model.resolve(request(model=None))
    stored = {}
    for sample in range(3):
        reply = asyncio.run(model.complete(asked, sample))
        stored[asked.key, sample] = reply.to_json()

    def lookup(key, sample):
        found = stored.get((key, sample))
        return ModelReply.from_json(found) if found else None

    replay = ReplayModel(
        LiteLLM(model="openai/scripted", api_base="http://127.0.0.1:9/v1"), lookup, source="run a"
    )
    again = replay.resolve(request(model=None))
    texts = [asyncio.run(replay.complete(again, sample)).text for sample in range(3)]
    assert texts == ["answer 0", "answer 1", "answer 2"]
    assert asyncio.run(replay.complete(again, 1)).trace.ids
    assert asyncio.run(replay.complete(again, 1)).attempts == 0  # nobody sent it
    with pytest.raises(UsageError, match=r"run a holds no answer to sample 3 of request .*differs"):
        asyncio.run(replay.complete(again, 3))


@pytest.mark.parametrize(
    "change",
    [
        {"text": "make it faster"},
        {"max_tokens": 7},
        {"sampling": Sampling(temperature=1.0)},
        {"model": "another"},
    ],
)
def test_another_question_has_another_key(change):
    changed = request(**{"text": "make it fast"} | change)
    assert changed.key != request("make it fast").key
    assert request("make it fast", memo={"note": 1}).key == request("make it fast").key
