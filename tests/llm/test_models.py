"""One model or several behind one door.

Invariants:
1. What a request leaves open is filled in from the settings; resolving again changes nothing.
2. A reservation is the worst case: every token that may be asked for, at the highest price.
3. Settings that cannot be are refused with field, value and remedy.
"""

import asyncio

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import LanguageModel, Message, ModelRequest, Sampling, TokenTrace
from evolve.llm import LiteLLM
from evolve.testing.model_server import Answer, Refusal
from tests.llm.conftest import request


def several(**settings) -> LiteLLM:
    return LiteLLM(
        models={
            "fast": {"model": "openai/small", "weight": 3, "temperature": 0.9},
            "strong": {"model": "openai/gpt-4o-mini", "weight": 1, "max_tokens": 99_999},
        },
        roles={"planner": "strong"},
        **settings,
    )


def bare(**fields) -> ModelRequest:
    return ModelRequest(messages=(Message("user", "hi"),), **fields)


def test_one_model_needs_its_name_only():
    models: LanguageModel = LiteLLM(model="openai/gpt-4o-mini")
    (card,) = models.models
    assert (card.name, card.priced, card.context_tokens, card.output_tokens) == (
        "openai/gpt-4o-mini",
        True,
        128_000,
        16_384,
    )
    assert models.resolve(bare()).model == "openai/gpt-4o-mini"


def test_several_models_keep_their_weights_and_share_the_rest():
    models = several(top_p=0.5, slots=3)
    assert [(card.name, card.weight) for card in models.models] == [("fast", 3), ("strong", 1)]
    assert models.slots == 6
    assert models.resolve(bare(model="strong")).sampling == Sampling(top_p=0.5)
    assert models.resolve(bare()).sampling == Sampling(temperature=0.9, top_p=0.5)


def test_a_role_is_played_by_its_model():
    assert several().resolve(bare(model="planner")).model == "strong"


def test_resolving_twice_changes_nothing_and_what_is_asked_goes_first():
    models = several(reasoning_effort="low")
    asked = bare(
        model="fast", max_tokens=7, sampling=Sampling(temperature=0.0, seed=3, stop=("END",))
    )
    once = models.resolve(asked)
    assert once.max_tokens == 7
    assert once.sampling == Sampling(temperature=0.0, seed=3, stop=("END",), reasoning_effort="low")
    assert models.resolve(once) == once
    assert models.resolve(once).key == once.key


def test_no_more_tokens_are_asked_for_than_a_model_can_say():
    assert several().resolve(bare(model="strong")).max_tokens == 16_384
    assert several().resolve(bare(model="fast", max_tokens=50_000)).max_tokens == 50_000


def test_an_unknown_model_or_role_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match=r"model judge: there is no such.*fast, strong, planner"):
        several().resolve(bare(model="judge"))


def test_a_reservation_is_the_worst_case():
    models = LiteLLM(model="openai/x", price={"prompt": 1, "completion": 10}, max_tokens=1000)
    asked = models.resolve(bare())
    reservation = models.reserve(asked)
    assert 1000 < reservation.tokens < 1100
    assert 0.01 < reservation.usd < 0.0102
    assert models.models[0].priced
    assert LiteLLM(model="openai/x").reserve(asked).usd is None
    assert not LiteLLM(model="openai/x").models[0].priced


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("deadline_s", 1, None),
        ("slots", 1, None),
        ("max_tokens", 1, None),
        ("context_tokens", 1, None),
        ("requests_per_minute", 1, None),
        ("tokens_per_minute", 1, None),
        ("temperature", 0, None),
        ("top_p", 0, 1),
    ],
)
def test_a_number_may_be_as_low_and_as_high_as_its_message_says(name, least, most):
    upto = "" if most is None else f" to {most}"
    for end in filter(lambda one: one is not None, (least, most)):
        assert LiteLLM(model="openai/x", **{name: end}).models
        beyond = end - 0.5 if end == least else end + 0.5
        with pytest.raises(UsageError, match=rf"llm\.{name}={beyond}: .* from {least}{upto}$"):
            LiteLLM(model="openai/x", **{name: beyond})


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "llm.model is not set; give it as provider/name"),
        ({"model": "gpt-5"}, "llm.model=gpt-5: write provider/name"),
        ({"model": "claude-sonnet-4-5"}, "e.g. llm.model=anthropic/claude-sonnet-4-5"),
        ({"model": "opnai/x"}, "no provider 'opnai'; did you mean openai/x"),
        ({"model": "org/name"}, "no provider 'org'.*write openai/org/name, with llm.api_base=URL"),
        ({"model": "openai/x", "api_base": "localhost:8000"}, "llm.api_base=localhost:8000: write"),
        ({"model": "openai/x", "slots": 0}, "llm.slots=0: it is a number from 1"),
        ({"model": "openai/x", "deadline_s": "soon"}, "llm.deadline_s=soon: it is a number"),
        ({"model": "openai/x", "top_p": 2}, "llm.top_p=2: it is a number from 0 to 1"),
        ({"model": "openai/x", "options": {"n": 2}}, "llm.options.n is no option: .*samples"),
        ({"model": "openai/x", "options": {"extra_body": {"n": 4}}}, "extra_body.n is no option: "),
        ({"model": "openai/x", "options": {"extra_body": {"max_tokens": 9}}}, "own, llm.max_tok"),
        ({"model": "openai/x", "options": {"extra_body": 3}}, "extra_body=3: it is a mapping"),
        ({"model": "openai/x", "options": {"base_url": "http://h/v1"}}, "own, llm.api_base"),
        ({"model": "openai/x", "options": {"messages": []}}, "operators decide"),
        ({"model": "openai/x", "options": {"stream": True}}, "own, llm.stream"),
        ({"model": "openai/x", "options": {"timeout": 9}}, "llm.deadline_s"),
        ({"model": "openai/x", "options": {"fallbacks": ["a/b"]}}, "repeats a call"),
        ({"model": "openai/x", "stream": True, "trace": True}, "ids from streams; leave llm.str"),
        ({"models": {"a": {"weight": 1}}}, "llm.models.a.model is not set"),
        ({"models": {"a": 3}}, "llm.models.a=3 describes no model"),
        ({"models": {"a": {"model": 3}}}, "llm.models.a.model=3: it is a text"),
        ({"models": {"a": {"model": "openai/x", "price": 3}}}, "llm.models.a.price=3: it is a map"),
        ({"models": {"a": {"model": "openai/x", "stream": "no"}}}, "stream='no': it is true or"),
        ({"models": {"a": {"model": "openai/x", "weight": 0}}}, "every weight is 0"),
        ({"models": {"a": {"model": "x"}}}, "llm.models.a.model=x: write provider/name"),
        (
            {"models": {"a": {"model": "openai/x", "slots": 0}}},
            "llm.models.a.slots=0: it is a number",
        ),
        ({"models": {"a": {"modle": "openai/x"}}}, "llm.models.a.modle: there is no such setting"),
        ({"model": "openai/x", "roles": {"planner": "b"}}, "llm.roles.planner=b: there is no such"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        LiteLLM(**settings)


def test_what_is_sent_is_what_was_asked(serve):
    server = serve("fine")
    models = LiteLLM(
        model="openai/scripted",
        api_base=server.api_base,
        top_p=0.9,
        options={"top_k": 20},
        max_tokens=77,
    )
    sampling = Sampling(temperature=0.3, seed=5, stop=("END",))
    messages = (Message("system", "be brief"), Message("user", "schöne Grüße"))
    asked = models.resolve(ModelRequest(messages=messages, sampling=sampling))

    async def talk():
        reply = await models.complete(asked, 2)
        await models.close()
        return reply

    assert asyncio.run(talk()).text == "fine"
    body = server.log.requests[0].body
    assert body["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "schöne Grüße"},
    ]
    wanted = {"model": "scripted", "temperature": 0.3, "top_p": 0.9, "top_k": 20}
    wanted |= {"max_tokens": 77, "stop": ["END"], "seed": 7}
    assert {name: body.get(name) for name in wanted} == wanted


def test_models_of_one_run_have_endpoints_of_their_own(serve):
    first, second = serve("first"), serve("second")
    models = LiteLLM(
        models={
            "a": {"model": "openai/scripted", "api_base": first.api_base},
            "b": {"model": "openai/scripted", "api_base": second.api_base},
        }
    )

    async def both():
        return [(await models.complete(request(model=name))).text for name in ("a", "b")]

    assert asyncio.run(both()) == ["first", "second"]


def test_token_ids_and_log_probabilities_are_kept(serve):
    server = serve(Answer("abcdefghij", token_ids=True))
    models = LiteLLM(model="openai/scripted", api_base=server.api_base, trace=True)
    reply = asyncio.run(models.complete(models.resolve(bare())))
    assert reply.trace == TokenTrace(ids=(4, 4, 2), logprobs=(-0.5,) * 3)
    assert server.log.requests[0].body["return_token_ids"] is True


def test_log_probabilities_of_a_stream_are_kept(serve):
    server = serve(Answer("abcdefghij", token_ids=True))
    options = {"logprobs": True, "extra_body": {"return_token_ids": True}}
    settings = {"api_base": server.api_base, "stream": True, "options": options}
    models = LiteLLM(model="openai/scripted", **settings)
    reply = asyncio.run(models.complete(models.resolve(bare())))
    assert reply.trace == TokenTrace(logprobs=(-0.5,) * 10)  # in pieces of one character


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("second", "waits"),
    [
        ({}, True),
        ({"requests_per_minute": 5000}, False),
        ({"key_variable": "ANOTHER_KEY"}, False),
    ],
)
def test_models_that_share_a_key_and_its_limits_share_what_it_allows(
    serve, monkeypatch, second, waits
):
    """Seen by who keeps still while the endpoint wants to be left alone."""
    monkeypatch.setenv("ANOTHER_KEY", "no-key")
    server = serve(lambda asked: Refusal(429, retry_after=1.0) if asked.number == 1 else "done")
    models = LiteLLM(
        models={"a": {"model": "openai/one"}, "b": {"model": "openai/two"} | second},
        api_base=server.api_base,
        requests_per_minute=6000,
    )
    assert models.slots == 16

    async def second_waited():
        await models.complete(request(model="b"))  # imports LiteLLM
        first = asyncio.create_task(models.complete(request(model="a")))
        while len(server.log.requests) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        start = asyncio.get_running_loop().time()
        await models.complete(request(model="b"))
        waited = asyncio.get_running_loop().time() - start
        await first
        return waited

    assert (asyncio.run(second_waited()) > 0.5) == waits


def test_an_answer_is_given_the_room_that_the_prompt_leaves_in_the_context():
    models = LiteLLM(model="openai/x", context_tokens=40_960, max_tokens=32_768)
    (card,) = models.models
    assert (card.context_tokens, card.output_tokens) == (40_960, 32_768)
    long = ModelRequest(messages=(Message("user", "abc" * 24_000),))
    asked = models.resolve(long)
    assert 16_000 < asked.max_tokens < 40_960 - 24_000
    assert models.resolve(asked) == asked
    assert models.resolve(bare()).max_tokens == 32_768
    too_long = ModelRequest(messages=(Message("user", "abc" * 99_000),))
    assert models.resolve(too_long).max_tokens == 1


def test_a_parameter_that_a_model_does_not_take_is_left_out_and_said(serve, caplog):
    server = serve("fine")
    models = LiteLLM(model="openai/o3-mini", api_base=server.api_base, temperature=0.2)
    asked = models.resolve(bare())

    async def twice():
        await models.complete(asked)
        return await models.complete(asked)

    assert asyncio.run(twice()).text == "fine"
    assert "temperature" not in server.log.requests[0].body
    said = [record for record in caplog.records if "left out" in record.message]
    assert len(said) == 1
    assert "temperature" in said[0].message
