"""What calls cost, and the most that they can.

Invariants:
1. The worst case is never below what a call comes to within its bounds.
2. No price is made up: without one, costs are None.
3. Prices are read without importing LiteLLM.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.model import Message, Usage
from evolve.core.source.tokens import estimate_tokens
from evolve.llm import ModelSettings
from evolve.llm.client import load
from evolve.llm.prices import Price, listed, prompt_bound, prompt_estimate
from evolve.testing.model_server import Answer
from tests.llm.conftest import ask, endpoint, request

counts = st.integers(0, 10**6)
rates = st.floats(0, 1000)


@given(counts, counts, st.floats(0, 1), rates, rates, st.floats(0, 3))
def test_the_worst_case_is_never_below_the_cost(prompt, completion, share, rate, other, discount):
    price = Price(prompt=rate, completion=other, cached=rate * discount)
    usage = Usage(prompt=prompt, completion=completion, cached=int(prompt * share))
    assert price.cost(usage) <= price.worst(prompt, completion) * (1 + 1e-9)


def test_a_cost_is_what_the_price_says():
    usage = Usage(prompt=1000, completion=500, cached=400)
    assert Price(prompt=2, completion=8, cached=0.5).cost(usage) == pytest.approx(5.4e-3)
    assert Price(prompt=2, completion=8).cost(usage) == pytest.approx(6e-3)
    assert Price(prompt=0, completion=0).cost(usage) == 0


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5",
                                   "gemini/gemini-2.5-pro", "deepseek/deepseek-chat"])  # fmt: skip
def test_models_of_the_large_providers_are_listed_with_price_and_size(model):
    found = listed(model)
    assert 0 < found.ceiling.prompt < found.ceiling.completion < 1000
    assert found.context_tokens > 30_000
    assert found.output_tokens > 4_000


@pytest.mark.parametrize("model", ["openai/my-own", "groq/gpt-4o-mini", "ollama/unheard-of"])
def test_an_unknown_model_has_no_price(model):
    assert listed(model) is None
    assert ModelSettings(model=model).ceiling is None


@pytest.mark.parametrize(
    "options",
    [{"service_tier": "priority"}, {"extra_body": {"service_tier": "priority"}}],
)
def test_another_service_tier_has_no_price_but_that_which_the_user_gives(serve, options):
    server = serve(Answer("x" * 400))
    asked = {"model": "openai/gpt-4o-mini", "options": options}
    assert endpoint(server, **asked).reserve(request()).usd is None
    assert ask(endpoint(server, **asked)).cost_usd is None
    given = {"prompt": 1.0, "completion": 2.0}
    assert ask(endpoint(server, price=given, **asked)).cost_usd > 0
    usual = {"model": "openai/gpt-4o-mini", "options": {"service_tier": "default"}}
    assert endpoint(server, **usual).reserve(request()).usd > 0


def test_a_price_of_long_prompts_counts_for_the_worst_case():
    entry = load().model_cost["gemini/gemini-2.5-pro"]
    ceiling = listed("gemini/gemini-2.5-pro").ceiling
    assert ceiling.prompt == entry["input_cost_per_token_above_200k_tokens"] * 1e6
    assert ceiling.completion == entry["output_cost_per_token_above_200k_tokens"] * 1e6


@pytest.mark.parametrize(
    "model", ["openai/gpt-4o-mini", "openai/gpt-5.6", "deepseek/deepseek-chat"]
)
def test_a_listed_model_costs_what_litellm_says_and_no_more_than_was_reserved(serve, model):
    server = serve(Answer("x" * 4000, cached_tokens=100))
    asked = (
        endpoint(server, model="openai/" + model.partition("/")[2])
        if "openai" in model
        else (endpoint(server, model=model))
    )
    text = "y" * 4000
    reply = ask(asked, text, max_tokens=1000)
    entry = load().model_cost[listed(model).name]
    cached = entry.get("cache_read_input_token_cost") or entry["input_cost_per_token"]
    expected = (
        900 * entry["input_cost_per_token"] + 100 * cached + 1000 * entry["output_cost_per_token"]
    )
    assert reply.usage == Usage(prompt=1000, completion=1000, cached=100, reasoning=0)
    assert reply.cost_usd == pytest.approx(expected, rel=1e-6)
    assert reply.cost_usd <= asked.reserve(request(text, max_tokens=1000)).usd


def test_the_users_price_goes_before_the_list(serve):
    price = {"prompt": 1.0, "completion": 2.0, "cached": None}
    asked = endpoint(serve(Answer("x" * 400)), model="openai/gpt-4o-mini", price=price)
    reply = ask(asked, "y" * 400)
    assert reply.cost_usd == pytest.approx(100 * 1e-6 + 100 * 2e-6)


@pytest.mark.parametrize(
    ("price", "words"),
    [
        ({"prompt": 1.0}, "llm.price.completion is not set although llm.price.prompt is"),
        ({"cached": 1.0}, "llm.price.prompt is not set"),
        ({"prompt": -1, "completion": 1}, "llm.price.prompt: -1 is no price"),
        ({"prompt": "1$", "completion": 1}, r"llm.price.prompt: '1\$' is no price"),
        ({"output": 1}, "llm.price.output: there is no such price"),
    ],
)
def test_a_price_that_cannot_be_is_refused(price, words):
    with pytest.raises(UsageError, match=words):
        ModelSettings(model="openai/x", price=price)


def test_a_count_that_cannot_be_is_not_charged_for(serve):
    model = endpoint(serve(Answer("x" * 4000, cached_tokens=10**9)), model="openai/gpt-4o-mini")
    entry = load().model_cost["gpt-4o-mini"]
    reply = ask(model, "y" * 4000)
    assert reply.usage == Usage(prompt=1000, completion=1000, cached=None, reasoning=0)
    expected = 1000 * (entry["input_cost_per_token"] + entry["output_cost_per_token"])
    assert reply.cost_usd == pytest.approx(expected)


def test_an_answer_whose_cost_cannot_be_found_is_kept(serve, monkeypatch, caplog):
    """As where LiteLLM's list, once it is loaded, has other names than its file."""
    model = endpoint(serve("fine"), model="openai/gpt-4.1-nano")
    monkeypatch.delitem(load().model_cost, "gpt-4.1-nano")
    reply = ask(model)
    assert (reply.text, reply.cost_usd) == ("fine", None)
    assert reply.usage is not None
    assert "the cost of a call is not known" in caplog.text


HARD = ("0123456789" * 400, "~^`|" * 100, "xQzJ" * 100, "a1b2" * 100)


@given(st.lists(st.one_of(st.text(max_size=300), st.sampled_from(HARD)), min_size=1, max_size=4))
def test_a_prompt_never_has_more_tokens_than_its_bound(texts):
    encode = load().token_counter
    messages = [Message("user", text) for text in texts]
    plain = [{"role": "user", "content": text} for text in texts]
    assert encode(model="gpt-3.5-turbo", messages=plain) <= prompt_bound(messages)


@pytest.mark.parametrize("text", HARD)
def test_a_prompt_may_have_as_many_tokens_as_bytes(text):
    assert prompt_bound([Message("user", text)]) >= len(text)


def test_the_estimate_of_code_is_from_above_and_not_wasteful():
    source = open(__file__).read()  # noqa: PTH123, SIM115
    true = load().token_counter(model="gpt-3.5-turbo", text=source)
    assert true <= prompt_estimate([Message("user", source)]) < 1.7 * true


def test_every_digit_is_estimated_as_a_token():
    assert estimate_tokens("0123456789" * 400) == 4000
    assert estimate_tokens("x = 12") == 4


@pytest.mark.parametrize(
    ("said", "cost"), [(0.0123, 0.0123), (0, 0.0), (-1, None), ("much", None), (None, None)]
)
def test_what_openrouter_says_that_it_charged_is_the_cost(serve, monkeypatch, said, cost):
    monkeypatch.setenv("ANY_KEY", "planted-key-12345")
    counts = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "cost": said}
    server = serve(Answer("text", usage=counts))
    settings = {"model": "openrouter/unheard/of", "key_variable": "ANY_KEY"}
    assert ask(endpoint(server, **settings)).cost_usd == cost
    price = {"prompt": 1e6, "completion": 0}
    assert ask(endpoint(server, **settings, price=price)).cost_usd == 9
    assert ask(endpoint(server)).cost_usd is None  # another server may count in another currency
