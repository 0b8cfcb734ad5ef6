"""Whatever an endpoint refuses with, there is one word for it.

Invariants:
1. Every error status with any words and headers is classified, in one short line.
2. Only what may have been billed is lost, and nothing that may have been is retried.
3. The words of an error are found however an endpoint has wrapped them.
"""

import json

import httpx
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.llm.bodies import said
from evolve.llm.faults import (
    FOR_PEOPLE,
    MAX_MESSAGE,
    RETRIED,
    FaultKind,
    classify,
)
from evolve.llm.waits import MAX_RETRY_AFTER_S

REQUEST = httpx.Request("POST", "http://127.0.0.1/v1/chat/completions")
printable = st.text(st.characters(min_codepoint=32, max_codepoint=126))
bodies = st.none() | st.text() | st.dictionaries(st.sampled_from(["message", "code"]), st.text())


def refused(status: int, body: object = None, **headers: str) -> openai.APIStatusError:
    response = httpx.Response(
        status, headers={name.replace("_", "-"): value for name, value in headers.items()},
        request=REQUEST,
    )  # fmt: skip
    return openai.APIStatusError(str(body), response=response, body=body)


@given(st.integers(400, 599), bodies, printable | st.floats().map(str), st.booleans())
def test_every_refusal_is_one_short_line_with_a_finite_wait(status, body, after, sent):
    fault = classify(refused(status, body, retry_after=after), sent=sent)
    assert fault.kind is not FaultKind.UNREACHABLE
    assert "\n" not in fault.message
    assert len(fault.message) <= MAX_MESSAGE + 3
    assert fault.retry_after_s is None or 0 <= fault.retry_after_s <= MAX_RETRY_AFTER_S


@given(st.text(), st.booleans())
def test_a_connection_that_was_never_made_is_not_reached_whatever_it_says(words, sent):
    error = RuntimeError(words)
    error.__context__ = httpx.ConnectError(words)
    assert classify(error, sent=sent).kind is FaultKind.UNREACHABLE


@pytest.mark.parametrize(
    ("error", "sent", "kind"),
    [
        (httpx.ReadError("reset"), False, FaultKind.LOST),
        (httpx.ReadTimeout("silence"), True, FaultKind.LOST),
        (KeyError("message"), True, FaultKind.LOST),
        (KeyError("message"), False, FaultKind.SET_UP),
        (openai.OpenAIError("Missing credentials"), False, FaultKind.AUTHENTICATION),
        (ModuleNotFoundError("No module named 'google'"), False, FaultKind.SET_UP),
        (refused(429, {"message": "You exceeded your current quota"}), True, FaultKind.RATE_LIMIT),
        (refused(429, {"message": "x", "code": "insufficient_quota"}), True, FaultKind.QUOTA),
        (refused(400, {"message": "Your credit balance is too low"}), True, FaultKind.QUOTA),
        (refused(403, {"message": "your input was flagged"}), True, FaultKind.FILTERED),
        (refused(400, {"message": "prompt is too long: 9 > 8"}), True, FaultKind.TOO_LONG),
    ],
)
def test_the_reason_is_found(error, sent, kind):
    assert classify(error, sent=sent).kind is kind


def test_what_may_have_been_billed_is_never_sent_again():
    assert FaultKind.LOST not in RETRIED | FOR_PEOPLE


def test_milliseconds_go_before_seconds():
    error = refused(429, None, retry_after="9", retry_after_ms="1500")
    assert classify(error, sent=True).retry_after_s == 1.5


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "too long"}}, "too long"),
        ({"error": "too long"}, "too long"),
        ([{"error": {"message": "too long"}}], "too long"),
        ({"error": {"message": json.dumps({"error": {"message": "too long"}})}}, "too long"),
        ({"error": {"message": '{"error": cut'}}, '{"error": cut'),
        ({"error": {"message": ["too long", {"msg": "too many"}]}}, "too long; too many"),
        ({"detail": [{"loc": ["body", "n"], "msg": "no number"}]}, "body.n: no number"),
        ({"base_resp": {"status_code": 1008, "status_msg": "too long"}}, "too long"),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "too long"}}},
            "Provider returned error: too long",
        ),
        ({"error": {"message": "too long", "metadata": {"raw": "prompt"}}}, "too long"),
        ({"choices": []}, ""),
    ],
)
def test_the_words_of_an_error_are_found(body, words):
    assert said(json.dumps(body)).message == words


def test_a_text_that_is_no_json_says_nothing():
    assert said("<html>busy</html>").words == ""
