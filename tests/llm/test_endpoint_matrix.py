"""Twelve products' odd replies, through LiteLLM and real HTTP.

Invariants:
1. An answer is found wherever it stands, and nothing of its reasoning is taken for it.
2. What is refused before anything is generated is sent again in another form or later, and is
   never charged; what no waiting mends ends after two or three tries with the setting's name.
3. What was learned from a refusal holds for later calls.
"""

import asyncio

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, Sampling
from evolve.llm.endpoint import Endpoint
from evolve.testing.model_server import Raw
from tests.llm.conftest import endpoint
from tests.llm.endpoint_replies import CASES
from tests.llm.endpoint_replies.shapes import Case

UNBILLED = (CallStatus.FAILED, CallStatus.UNAVAILABLE)


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    monkeypatch.setenv("ANY_KEY", "planted-key-12345")
    for name, value in (("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b"), ("REGION_NAME", "c")):
        monkeypatch.setenv(f"AWS_{name}", value)


def prepared(server, case: Case) -> Endpoint:
    key = None if case.model.startswith("bedrock") else "ANY_KEY"
    return endpoint(server, model=case.model, key_variable=key, **case.settings)


def asked(case: Case) -> ModelRequest:
    system = [Message("system", "be brief")] if case.system else []
    sampling = Sampling(
        temperature=case.settings.get("temperature"),
        top_p=case.settings.get("top_p"),
        seed=7 if "seed" in case.lacks else None,
        reasoning_effort=case.settings.get("reasoning_effort"),
    )
    tokens = case.settings.get("max_tokens", 1000)
    messages = (*system, Message("user", "make it fast"))
    return ModelRequest(messages=messages, model="m", max_tokens=tokens, sampling=sampling)


def replies_of(model: Endpoint, request: ModelRequest, calls: int) -> list[ModelReply]:
    async def all_of_them():
        return [await model.complete(request, 0) for _ in range(calls)]

    return asyncio.run(all_of_them())


def name_of(case: Case) -> str:
    return f"{case.product}: {case.says}"


@pytest.mark.parametrize("case", [case for case in CASES if not case.stops], ids=name_of)
def test_the_reply_is_read_as_it_is_meant(serve, case):
    server = serve(*case.replies)
    (reply,) = replies_of(prepared(server, case), asked(case), 1)
    assert reply.status is case.status, reply
    assert (reply.text, reply.reasoning.strip()) == (case.text, case.reasoning.strip())
    assert (reply.attempts, len(server.log.requests)) == (case.attempts, case.attempts)
    last = server.log.requests[-1].body
    assert {name: last.get(name) for name in case.holds} == case.holds
    assert not set(case.lacks) & set(last)


@pytest.mark.parametrize("case", [case for case in CASES if case.stops], ids=name_of)
def test_what_no_waiting_mends_ends_after_a_few_tries_with_the_settings_name(serve, case):
    server = serve(*case.replies)
    model = prepared(server, case)
    before = replies_of(model, asked(case), case.calls - 1)
    assert all(reply.status in UNBILLED for reply in before)
    with pytest.raises(UsageError, match=f"(?s){case.stops}"):
        replies_of(model, asked(case), 1)
    assert len(server.log.requests) == case.calls


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.holds or case.lacks or case.system], ids=name_of
)
def test_what_was_learned_from_a_refusal_holds_for_later_calls(serve, case):
    server = serve(*case.replies)
    first, second = replies_of(prepared(server, case), asked(case), 2)
    assert (first.attempts, second.attempts) == (2, 1)
    forms = [request.body for request in server.log.requests]
    assert forms[0] != forms[1] == forms[2]
    if case.system:
        shown = str(forms[2].get("messages") or forms[2]["contents"])
        assert "be brief" in shown
        assert "'system'" not in shown


def test_a_second_call_that_is_refused_while_the_first_learns_is_sent_as_learned(serve):
    """Eight calls at once: each is refused once at most, and none is lost or charged twice."""
    refused = Raw({"error": {"message": "temperature is not supported with this model"}}, 400)
    server = serve(lambda asked: refused if "temperature" in asked.body else "fine")
    model = endpoint(server, temperature=0.5, slots=8)
    request = ModelRequest(
        messages=(Message("user", "hi"),), model="m", max_tokens=9, sampling=Sampling(temperature=1)
    )

    async def at_once():
        return await asyncio.gather(*(model.complete(request, n) for n in range(8)))

    replies = asyncio.run(at_once())
    assert {reply.text for reply in replies} == {"fine"}
    assert all(reply.attempts <= 2 for reply in replies)
    assert server.deliveries == 8
