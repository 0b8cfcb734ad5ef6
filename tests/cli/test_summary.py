"""The last lines of a run.

Invariants:
1. Programs without a verdict and requests without an answer are said, with the way to go on.
2. Where nothing is left, nothing of it is said.
3. A configured model that was never asked, or never answered, is said.
"""

from pathlib import Path

import pytest

from evolve.cli.byhand import ByHand
from evolve.cli.sitting import sitting
from evolve.cli.summary import summary
from evolve.report.facts import gather
from evolve.search.pipeline import Outcome
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import record


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        record(opened, synthetic_task(), SyntheticEvaluator(), "operators=llm")
        yield opened


def said(store: Store) -> list[str]:
    outcome = Outcome(reason="2m of 2m wall time used", finished=True)
    return list(summary(gather(store, "demo"), outcome, Path("runs/evolve.db"), "demo.html"))


def test_what_was_not_judged_or_answered_any_more_is_said(store):
    with sitting(store, store.run("demo"), model=ByHand()) as search:
        search.offer(f"{SEED_SOURCE}\n\nOFFERED = 1\n")
        search.ask(operators=["rewrite_full"])
        search.ask(operators=["rewrite_full"])
    lines = said(store)
    left = "  1 program not judged yet, 2 requests not answered yet: `evolve resume` goes on with"
    assert any(line.startswith(left) for line in lines)
    assert "  go on     evolve resume demo" in lines


def test_a_model_that_was_never_asked_is_said(tmp_path):
    with Store.open(tmp_path / "other.db", create=True) as opened:
        words = ("operators=llm", "llm.model=openai/x")
        record(opened, synthetic_task(), SyntheticEvaluator(), *words)
        assert any(line.startswith("  No model was asked") for line in said(opened))
        with sitting(opened, opened.run("demo"), model=ByHand()) as search:
            search.ask(operators=["rewrite_full"])
        assert any(line.startswith("  No model has answered") for line in said(opened))


def test_where_nothing_is_left_nothing_of_it_is_said(store):
    assert not [line for line in said(store) if "not judged yet" in line or "go on" in line]
