"""The common coding agents themselves, with a scripted model instead of their provider's.

Invariants:
1. Each finds the judge by its preset, submits a program, polls its verdict and ends.
2. Its tokens are read from what it prints; so is the cost, where it prints one.

An agent that is not installed is left out. Nothing here reaches a provider.
"""

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evolve.core.model import CallStatus
from evolve.testing.synthetic import SEED_SOURCE
from tests.agents.model_endpoint import INPUT_TOKENS, OUTPUT_TOKENS, Endpoint, Model
from tests.agents.test_agent_operator import Search


@dataclass(frozen=True)
class Agent:
    """How an agent is pointed at the endpoint: words of its command, variables, its own files."""

    words: str
    variables: dict[str, str]
    files: dict[str, str]
    prints_cost: bool = False


def agent(name: str, url: str) -> Agent:
    if name == "claude":
        variables = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}
        variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        return Agent("claude -p", variables, {".claude.json": "{}"}, prints_cost=True)
    if name == "codex":
        provider = f'{{name="scripted", base_url="{url}/v1", env_key="SCRIPTED", '
        provider += 'wire_api="responses"}'
        words = f"codex exec -c model_provider=scripted -c 'model_providers.scripted={provider}'"
        return Agent(f"{words} -m scripted", {"SCRIPTED": "none"}, {})
    variables = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "none"}
    login = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    files = {".gemini/settings.json": json.dumps(login)}
    return Agent("gemini -m gemini-2.5-pro", variables, files)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint(Model(f"{SEED_SOURCE}\n\nTRIED = 1\n"))
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_an_agent_submits_polls_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint, name: str
) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    home, chosen = tmp_path / "home", agent(name, endpoint.url)
    for folder in (".claude", ".codex", ".gemini"):
        (home / folder).mkdir(parents=True)
    for path, text in chosen.files.items():
        (home / path).write_text(text)
    monkeypatch.setenv("HOME", str(home))
    for variable, value in chosen.variables.items():
        monkeypatch.setenv(variable, value)
    found = Search(
        tmp_path, "termination.proposals=3", "termination.wall_time=60s", agent=("good",),
        command=chosen.words,
        environment=[*chosen.variables], deadline="60s",
    )  # fmt: skip
    try:
        found.go()
        tried = [step for step in found.steps("agent") if step.note == "as the script says"]
        assert tried and tried[0].status is not None, found.said
        reply = found.replies()[0]
        assert (reply.status, reply.text) == (CallStatus.COMPLETED, "Verdict: correct")
        assert reply.usage is not None
        assert reply.usage.prompt % INPUT_TOKENS == 0 and reply.usage.prompt >= 2 * INPUT_TOKENS
        assert reply.usage.completion % OUTPUT_TOKENS == 0
        assert (reply.cost_usd is not None) == chosen.prints_cost
    finally:
        found.store.close()
