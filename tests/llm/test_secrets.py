"""A key is nowhere but in the environment and on the wire.

Invariant: with a key planted in the environment and quoted by the endpoint, no reply, request,
exception, traceback, log record, representation or output of ours holds it.
"""

import json
import logging
import time
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import EvolveError, UsageError
from evolve.llm import LiteLLM, ModelSettings
from evolve.llm.secrets import HIDDEN, hide_taken, literal_secret, scrub
from evolve.testing.model_server import Answer, Refusal
from tests.llm.conftest import ask, endpoint, request

KEY = "planted-7f3a9b-key"
PLAIN = "plain-words-only"  # a password that looks like nothing


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    monkeypatch.setenv("MY_GATEWAY_KEY", KEY)


@pytest.mark.sample(3)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 504])
def test_an_endpoint_that_quotes_the_key_does_not_get_it_into_our_words(
    serve, status, caplog, capfd
):
    caplog.set_level(logging.DEBUG, logger="evolve")
    ask(endpoint(serve("warm")))
    server = serve(Refusal(status, message=f"the key {KEY} or sk-abc1234567890 is no good"))
    model = endpoint(server, key_variable="MY_GATEWAY_KEY", deadline_s=1)
    shown = [repr(model), repr(model.settings)]
    try:
        shown.append(repr(ask(model)))
    except EvolveError as error:
        shown += [repr(error), "".join(traceback.format_exception(error))]
    shown += [caplog.text, *capfd.readouterr()]
    assert not [text for text in shown if KEY in text or "sk-abc1234567890" in text]
    assert server.log.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    "taken",
    [
        {"key_variable": "GATEWAY_PASS"},
        {"options": {"extra_headers": {"X-Gateway": "Basic ${oc.env:GATEWAY_PASS}"}}},
        {"models": {"a": {"options": {"extra_query": {"sub": "${oc.env:GATEWAY_PASS}"}}}}},
        {"models": {"a": {"key_variable": "GATEWAY_PASS"}}},
    ],
)
def test_what_a_configuration_takes_from_the_environment_is_hidden_whatever_it_is_called(
    taken, monkeypatch
):
    monkeypatch.setattr("evolve.llm.secrets._taken", set())
    monkeypatch.setenv("GATEWAY_PASS", "plain-words-only")
    monkeypatch.setenv("GATEWAY_HOST", "https://gateway.example")
    said = "at https://gateway.example: plain-words-only is not known"
    assert scrub(said) == said
    hide_taken({"api_base": "${oc.env:GATEWAY_HOST}"} | taken)
    assert scrub(said) == f"at https://gateway.example: {HIDDEN} is not known"


def test_what_is_stored_of_a_call_holds_no_key(serve):
    model = endpoint(serve("fine"), key_variable="MY_GATEWAY_KEY")
    reply = ask(model)
    assert KEY not in json.dumps(reply.to_json()) + repr(request())


def test_a_server_of_ones_own_does_not_get_the_key_of_the_openai_account(serve, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve("fine")
    ask(endpoint(server))
    assert KEY not in repr(server.log.requests[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"options": {"api_key": KEY}}, "llm.options.api_key is no option: llm.key_variable names"),
        ({"key_variable": KEY}, "llm.key_variable is no name of an environment variable"),
        (
            {"api_base": f"https://host/v1?key={KEY}"},
            "llm.api_base holds a password, a query or a key",
        ),
        ({"api_base": f"https://me:{KEY}@host/v1"}, "llm.api_base holds a password"),
        ({"api_base": f"me:{KEY}@host/v1"}, "llm.api_base holds a password"),
        ({"api_base": f"https://host/v1/{KEY}"}, "llm.api_base holds a password"),
        ({"api_base": "https://gw/v1/sk-proj-0123456789"}, "llm.api_base holds a password"),
        *(
            ({"api_base": base.format(PLAIN)}, "llm.api_base holds a password")
            for base in (
                "https://{}@proxy/http://x",
                "https://h/v1?key={}&u=http://x",
                "http://proxy/http://{}@x",
                "https:/{}@h/v1",
                "https:///{}@h/v1",
            )
        ),
    ],
)
def test_a_key_in_the_configuration_is_refused_without_repeating_it(settings, words):
    with pytest.raises(UsageError, match=words) as caught:
        ModelSettings(model="openai/x", **settings)
    assert KEY not in str(caught.value)
    assert PLAIN not in str(caught.value)


def test_an_address_with_an_at_sign_in_its_path_is_taken():
    ModelSettings(model="openai/x", api_base="https://gateway/@cf/v1")


HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"aws_secret_access_key": "short"}, "aws_secret_access_key"),
        ({"extra_headers": {"Authorization": f"Basic {HEX}"}}, "extra_headers.Authorization"),
        ({"extra_headers": {"Ocp-Apim-Subscription-Key": HEX}},
         "extra_headers.Ocp-Apim-Subscription-Key"),
        ({"extra_headers": {"Helicone-Auth": "Bearer sk-helicone-abcdefgh"}},
         "extra_headers.Helicone-Auth"),
        ({"extra_headers": {"Cookie": "session"}}, "extra_headers.Cookie"),
        ({"extra_headers": {"x-number-key": 12345}}, "extra_headers.x-number-key"),
        ({"extra_headers": {"Proxy-Auth": "${oc.env:NAME,literal-default}"}},
         "extra_headers.Proxy-Auth"),
        ({"extra_headers": {"Proxy-Auth": "${llm.other}"}}, "extra_headers.Proxy-Auth"),
        ({"extra_query": {"subscription-key": HEX}}, "extra_query.subscription-key"),
        ({"anything": ["fine", {"deep": f"x {KEY} y"}]}, "anything.1.deep"),
        ({"anything": "sk-proj-0123456789"}, "anything"),
    ],
)  # fmt: skip
def test_a_key_that_options_spell_out_is_found_by_its_name_or_its_look(options, name):
    assert literal_secret({"options": options}) == f"options.{name}"
    assert literal_secret({"models": {"a": {"options": options}}}) == f"models.a.options.{name}"


@pytest.mark.parametrize(
    "options",
    [
        {"stop_token_ids": [1], "truncate_prompt_tokens": 9, "prompt_cache_key": "run"},
        {"extra_headers": {"Helicone-Auth": "Bearer ${oc.env:HELICONE_KEY}"}},
        {"extra_headers": {"X-Key": "${oc.env:MY_GATEWAY_KEY}", "X-Author": "me", "A-Key": None}},
        {"extra_headers": {"anthropic-beta": "context-1m", "x-session-key": ""}},
        {"vertex_credentials": "${oc.env:GOOGLE_APPLICATION_CREDENTIALS}"},
    ],
)
def test_what_comes_from_the_environment_or_only_sounds_like_a_key_is_none(options):
    assert literal_secret({"options": options}) is None
    assert literal_secret({"key_variable": "MY_KEY", "models": {"secret": {"weight": 1}}}) is None


def test_a_key_is_no_setting():
    with pytest.raises(TypeError, match="api_key"):
        LiteLLM(model="openai/x", api_key=KEY)


@given(st.text(), st.text())
def test_scrubbing_takes_the_key_out_of_any_text(before, after):
    assert KEY not in scrub(before + KEY + after)


@pytest.mark.parametrize(
    "text",
    [
        "Bearer abc.def-123",
        "sk-proj-abcdefghij",
        "sk-ant-api03-" + "A1b2-_" * 12,
        "sk-or-v1-" + "0a1b2c3d" * 8,
        "sk-" + "0a1b2c3d" * 4,
        "sk-ab***************xyz",
        "gsk_" + "aB3" * 17,
        "hf_" + "aBcDeFg" * 5,
        "r8_" + "aB3" * 12,
        "xai-" + "aB3" * 26,
        "nvapi-" + "aB-3_" * 12,
        "dapi" + "0a1b2c3d" * 4,
        "sk_live_" + "aB3" * 8,
        "AIza" + "b" * 35,
        "AKIA" + "A1" * 8,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def_1",
        "https://me:word@host/v1",
        "redis://:word@host/0",
    ],
)
def test_scrubbing_knows_what_keys_look_like(text):
    assert HIDDEN in scrub(f"said: {text}, and more")
    assert scrub(f"said: {text}, and more").endswith(", and more")


@pytest.mark.parametrize(
    "text",
    [
        "the task-oriented risk-free skeleton asks for max_tokens=4 at http://127.0.0.1:80/v1",
        "ptr = base + pk_stride_m * offs_m + sk_block_size_n16 * hf_half_width_2",
        "x = sk-stride_m-pk-offset_block + rk-0.5*scale*1.44269 - qk-BLOCK_SIZE_K2",
        "r8_accumulator_0 = xai-eps; gsk_m = gsk_n**2  # sk-learn, hf_hub_download",
        "eyJ is no token, nor is AKIA, ASIA, AIza, dapi_call, nvapi-x or a bearer of news",
        "see https://docs.host/a:b and file://c:/d",
    ],
)
def test_scrubbing_leaves_words_and_variables_of_kernels_alone(text):
    assert scrub(text) == text


@given(st.lists(st.sampled_from(["sk-", "eyJ", "-a1", "***", "://", ":", "@", "Bearer ", "x" * 9])))
def test_what_was_scrubbed_stays_as_it_is(pieces):
    once = scrub("".join(pieces))
    assert scrub(once) == once


@pytest.mark.parametrize(
    "piece", ["sk-", "sk-a", "eyJabcdefgh-", "sk-a***-", "://a:", "hf_" + "a_" * 9]
)
def test_scrubbing_takes_no_longer_than_the_text_is_long(piece):
    text = piece * (400_000 // len(piece))
    start = time.process_time()
    scrub(text)
    assert time.process_time() - start < 1.0


def test_an_answer_is_stored_as_it_came(serve):
    text = "sk-this-is-what-the-model-said-1234567890"
    assert ask(endpoint(serve(Answer(text)))).text == text
