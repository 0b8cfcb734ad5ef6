"""What `evolve doctor` says of models: what is here, and what to do about the rest.

Invariant: variables are named, their values never.
"""

import pytest

from evolve.llm import ModelSettings
from evolve.llm.doctor import findings, key_finding
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
