"""Replies of any shape pass between LiteLLM and the network.

Invariants:
1. No JSON makes the reading of bodies raise, and a body that is as it should be is not touched.
2. A body that is an error gets the status that it names; one beside an answer is noted.
3. A call whose reply LiteLLM cannot read ends in a status, not in an exception.
"""

import asyncio
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.model import CallStatus, Usage
from evolve.llm.bodies import error_of, message_of, said, status_of, with_plain_text
from evolve.llm.secrets import HIDDEN
from evolve.llm.wire import Sending, _Transport, as_meant, sending
from evolve.testing.model_server import Answer, Raw
from tests.llm.conftest import ask, endpoint
from tests.llm.endpoint_replies.shapes import answer

NAMES = st.sampled_from(
    ["choices", "error", "message", "code", "type", "delta", "content", "text", "thinking",
     "detail", "usage", "completion_tokens", "finish_reason", "metadata", "raw", "loc", "msg"]
)  # fmt: skip
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("error")
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)


@given(JSON)
def test_no_json_makes_the_reading_of_bodies_raise(body):
    sending.set(Sending())
    status, meant = as_meant(body)
    assert 200 <= status < 600
    json.dumps(meant)
    said(json.dumps(body))
    message_of(body)
    error = error_of(body)
    assert error is None or 400 <= status_of(error) < 600
    if isinstance(body, dict):
        assert not isinstance(with_plain_text(body).get("content"), list)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"error": {"message": "no"}}, "no"),
        ({"error": {"code": 400}}, ""),
        ({"error": {}}, None),
        ({"error": "no", "status": 404}, "no"),
        ({"error": ""}, None),
        ([{"error": {"message": "no"}}], "no"),
        ([], None),
        ({"base_resp": {"status_code": 1004, "status_msg": "no"}}, "no"),
        ({"base_resp": {"status_code": 0, "status_msg": "ok"}}, None),
        ({"object": "error", "message": "no"}, "no"),
        ({"type": "error", "message": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"object": "list", "type": "ok", "message": "yes"}, None),
        ({}, None),
        ("error", None),
    ],
)
def test_a_body_is_an_error_in_any_of_the_usual_shapes(body, message):
    error = error_of(body)
    assert (None if error is None else message_of(error)) == message


def test_a_body_as_it_should_be_is_not_touched():
    body = answer().body
    assert as_meant(body) == (200, body)
    assert as_meant(body)[1] is body


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ({"message": "x", "code": 503}, 503),
        ({"message": "x", "code": "429"}, 429),
        ({"message": "x", "code": 1300, "raw_status_code": 429}, 429),
        ({"message": "x", "type": "overloaded_error"}, 529),
        ({"message": "x", "code": "rate_limit_exceeded"}, 429),
        ({"message": "x", "status": "RESOURCE_EXHAUSTED"}, 429),
        ({"message": "Internal server error"}, 500),
        ({"message": "You have no credit: insufficient balance"}, 402),
        ({"message": "the top_k is unknown"}, 400),
        ({"message": "x", "code": 42}, 400),
    ],
)
def test_an_error_without_an_answer_gets_its_status(error, status):
    assert as_meant({"error": error})[0] == status
    assert as_meant({"choices": [{"message": {"content": None}, "error": error}]})[0] == status


def test_an_error_beside_an_answer_is_noted_and_the_answer_stays():
    sending.set(Sending())
    body = {"choices": [{"message": {"content": "half"}, "error": {"message": "it died"}}]}
    assert as_meant(body) == (200, body)
    assert sending.get().failure == "it died"


@pytest.mark.parametrize("stream", [False, True])
def test_half_an_answer_is_charged_as_counted_and_says_why_it_ends(serve, stream):
    half = answer("half", finish="error", error={"message": "the node died", "code": 502})
    if stream:  # the error comes inside of a choice, at the end
        choice = {"index": 0, "delta": {"content": "half"}, "finish_reason": None}
        head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        last = {"index": 0, "delta": {"content": "."}, "finish_reason": "error"}
        half = Raw([head | {"choices": [choice]}, head | {"choices": [last]}], events=True)
    reply = ask(endpoint(serve(half), stream=stream))
    assert reply.status is CallStatus.TRUNCATED
    assert "the endpoint failed while it answered" in reply.error
    assert reply.text.startswith("half")
    assert reply.usage == (None if stream else Usage(prompt=1000, completion=500))


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [None]},
        {"choices": [{"index": 0, "message": {"content": {"a": 1}}}]},
        {"choices": {"a": 1}},
        {"choices": [{"message": "text"}]},
        "text",
        {"choices": [{"message": {"content": 5}}]},
    ],
)
@pytest.mark.parametrize("model", ["openai/m", "mistral/m", "anthropic/m", "gemini/m"])
def test_a_reply_that_cannot_be_read_ends_in_a_status(serve, monkeypatch, body, model):
    monkeypatch.setenv("ANY_KEY", "planted-key-12345")
    server = serve(Raw(body))
    reply = ask(endpoint(server, model=model, key_variable="ANY_KEY"))
    assert reply.status in (CallStatus.UNKNOWN, CallStatus.EMPTY), reply
    assert len(server.log.requests) == 1


@pytest.mark.parametrize("body", ["text", 5, True])
def test_a_body_that_is_no_object_reaches_the_client_as_it_came(body):
    async def reply(request):
        return httpx.Response(200, json=body, headers={"x-request-id": "7"})

    async def ask_once():
        transport = _Transport(httpx.MockTransport(reply))
        async with httpx.AsyncClient(transport=transport) as client:
            return await client.get("http://endpoint/v1")

    response = asyncio.run(ask_once())
    assert (response.status_code, response.json()) == (200, body)
    assert response.headers["x-request-id"] == "7"


def test_a_key_that_a_refusal_quotes_is_neither_logged_nor_kept(serve, monkeypatch, caplog):
    key = "planted-key-0123456789"
    monkeypatch.setenv("ANY_KEY", key)
    words = f"temperature is not supported; you sent the key {key}"
    server = serve(Raw({"error": {"message": words}}, 400), Raw({"error": {"message": words}}, 400))
    reply = ask(endpoint(server, key_variable="ANY_KEY", temperature=0.5))
    assert reply.status is CallStatus.FAILED
    assert key not in caplog.text + repr(reply)
    assert HIDDEN in reply.error


def test_answers_that_are_all_reasoning_end_the_run_with_the_settings_name(serve):
    """They are billed, so that the calls themselves end well; the sixth is not sent."""
    server = serve(Answer("[THINK]on and on", finish_reason="length"))
    model = endpoint(server, max_tokens=1000)
    for _ in range(5):
        reply = ask(model)
        assert (reply.status, reply.text) == (CallStatus.TRUNCATED, "")
        assert "before its first word" in reply.error
    with pytest.raises(Exception, match=r"raise llm\.max_tokens"):
        ask(model)
    assert len(server.log.requests) == 5
