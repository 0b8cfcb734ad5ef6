"""The cost of the reference, which the first prompt of a search has.

Invariants:
1. It is asked for once, before the run, if an operator asks a model, and is kept with the run.
2. A judge that fails at it costs the search nothing but these lines of its prompts.
3. A replay is told what the recorded run was told, and measures nothing.
"""

from pathlib import Path

import pytest

import evolve
from evolve.store import Store
from evolve.testing.model_server import ModelServer
from tests.cli.recording import words_for
from tests.library.conftest import SEARCH, program

WITH_MODEL = {**SEARCH, "budget": {"evaluations": 2}}


def answered(request) -> str:
    return f"```python\n{program(1.5, str(request.number))}```"


@pytest.fixture
def server():
    with ModelServer(answered) as running:
        yield running


def settings(server: ModelServer) -> dict[str, object]:
    words = words_for(server.api_base, "operators=rewrite_full")
    return dict(word.split("=", 1) for word in words) | {"initial": []}


def kept(name: str) -> object:
    with Store.open("runs/evolve.db", read_only=True) as store:
        return store.run(name).config.get("reference")


def test_the_first_prompt_has_the_cost_of_the_reference(judge, server):
    result = evolve.optimize("./relu.py", **{**WITH_MODEL, "settings": settings(server)})
    assert "PyTorch eager about 2 ms (no interval yet)" in server.log.requests[0].prompt
    assert "memory 8 MB, 0.2 ms at the copy rate" in server.log.requests[0].prompt
    assert kept(result.run)["cases"][0]["time_ms"] == 2.0
    assert Path("costed").read_text() == "."


def test_a_search_without_a_model_asks_for_no_cost(judge):
    result = evolve.optimize("./relu.py", **SEARCH)
    assert kept(result.run) is None
    assert not Path("costed").exists()


def test_a_judge_that_fails_at_the_cost_judges_all_the_same(judge, server):
    judge("no_cost")
    said = []
    given = {**WITH_MODEL, "settings": settings(server), "on_event": said.append}
    result = evolve.optimize("./relu.py", **given)
    assert result.speedup == 1.5
    assert kept(result.run) is None
    assert "PyTorch eager about" not in server.log.requests[0].prompt
    assert any("its cost is unknown to prompts" in str(event) for event in said)


@pytest.mark.slow  # replays are in search/test_replay
def test_a_replay_is_told_what_the_recorded_run_was_told(judge, server):
    first = evolve.optimize("./relu.py", **{**WITH_MODEL, "settings": settings(server)})
    again = settings(server)
    again = {name: value for name, value in again.items() if not name.startswith("llm.")}
    again |= {"llm": "replay", "llm.run": first.run}
    second = evolve.optimize("./relu.py", **{**WITH_MODEL, "settings": again})
    assert second.speedup == first.speedup
    assert kept(second.run) == kept(first.run) is not None
    assert Path("costed").read_text() == "."
