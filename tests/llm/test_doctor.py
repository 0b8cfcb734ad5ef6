"""What `evolve doctor` says of models: what is here, and what to do about the rest.

Invariant: variables are named, their values never.
"""

import pytest

from evolve.core.errors import UsageError
from evolve.llm import ModelSettings
from evolve.llm.doctor import findings, key_finding, refuse_unlisted, refuse_without_key
from evolve.llm.secrets import KEY_VARIABLES

KEY = "planted-7f3a9b-key"


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for variable in KEY_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


def said(found) -> str:
    return "\n".join(" | ".join(finding) for finding in found)


def test_keys_are_listed_by_the_names_of_their_variables(monkeypatch):
    assert "note | model keys | none found; export e.g. OPENAI_API_KEY" in said(findings())
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    text = said(findings())
    assert "ok | model keys | ANTHROPIC_API_KEY, GROQ_API_KEY" in text
    assert KEY not in text


def test_a_model_without_its_key_is_told_what_it_needs(monkeypatch):
    text = said([key_finding(ModelSettings(model="openai/my-own"))])
    assert "note | openai/my-own | no key found: export OPENAI_API_KEY" in text
    monkeypatch.setenv("MINE", KEY)
    text = said([key_finding(ModelSettings(model="openai/gpt-4o-mini", key_variable="MINE"))])
    assert "ok | openai/gpt-4o-mini | key in MINE" in text
    assert KEY not in text


def test_a_server_of_ones_own_needs_no_key():
    settings = ModelSettings(
        model="openai/my-own",
        api_base="http://localhost:8000/v1",
        price={"prompt": 0, "completion": 0},
    )
    text = said([key_finding(settings)])
    assert "ok | openai/my-own | at http://localhost:8000/v1, without a key" in text


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "ollama/mine"},
        {"model": "openai/gpt-4o-mini", "api_base": "http://localhost:8000/v1"},
        {"model": "openai/gpt-4o-mini", "options": {"extra_headers": {"a": "b"}}},
    ],
)
def test_models_that_may_need_no_key_are_not_refused(settings):
    refuse_without_key(ModelSettings(**settings))


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("openai/gpt-4o-mini", "OPENAI_API_KEY"),
        ("openai/gpt-4o-mini", "OPENAI_GATEWAY_TOKEN"),
        ("gemini/gemini-2.5-pro", "GOOGLE_API_KEY"),
    ],
)
def test_any_variable_of_a_provider_may_hold_its_key(monkeypatch, model, variable):
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    with pytest.raises(UsageError, match=r"needs a key.*export [A-Z]+_API_KEY=\.\.\.") as told:
        refuse_without_key(ModelSettings(model=model))
    assert str(told.value).startswith(f"llm.model={model}: ")
    monkeypatch.setenv(variable, "")
    with pytest.raises(UsageError, match="needs a key"):
        refuse_without_key(ModelSettings(model=model))
    monkeypatch.setenv(variable, KEY)
    refuse_without_key(ModelSettings(model=model))


def test_a_variable_that_is_named_has_to_be_there(monkeypatch):
    settings = ModelSettings(model="openai/gpt-4o-mini", key_variable="MINE")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(UsageError, match=r"llm\.key_variable=MINE: there is no such environment"):
        refuse_without_key(settings)
    monkeypatch.setenv("MINE", KEY)
    refuse_without_key(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "openai/gpt-4o-mini"},
        {"model": "openai/gpt-4o-mini-2031-01-01"},
        {"model": "openai/ft:gpt-4o-mini:me::1"},
        {"model": "openai/gpt-99", "context_tokens": 200_000},
        {"model": "openai/gpt-99", "api_base": "http://localhost:8000/v1"},
        {"model": "openai/gpt-99", "price": {"prompt": 1, "completion": 2}},
        {"model": "openrouter/some/model"},
        {"model": "ollama/mine"},
    ],
)
def test_a_model_that_is_listed_or_may_be_newer_is_not_refused(settings):
    refuse_unlisted(ModelSettings(**settings))


def test_a_model_that_its_provider_does_not_list_is_refused_with_the_nearest_name():
    with pytest.raises(UsageError) as told:
        refuse_unlisted(ModelSettings(model="openai/gpt-4o-mimi"))
    assert str(told.value).startswith(
        "llm.model=openai/gpt-4o-mimi: LiteLLM lists no such model of openai; "
        "did you mean llm.model=openai/gpt-4o-mini? For one that is newer"
    )
    with pytest.raises(UsageError, match=r"no such model of openai; For one"):
        refuse_unlisted(ModelSettings(model="openai/zzzzzzzzzz"))
