"""Transcripts of coding agents in the report.

Invariants:
1. A program of the way to the best that an agent submitted has the agent's transcript beside it.
2. Verdicts in it are the run's; nothing of it is read as markup; its length is bounded.
"""

from pathlib import Path

import pytest

from evolve.report.run import episodes as showing
from evolve.report.run.html import write_report
from evolve.report.text import TIMES
from evolve.store import Store
from tests.serve.ui.episodes import RUN, UNKNOWN, add_episodes
from tests.serve.ui.serving import HOSTILE


@pytest.fixture
def page(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        add_episodes(store, long=3)
        yield lambda: write_report(store, RUN, tmp_path / "report.html").read_text()


def test_the_transcript_that_gave_the_best_program_stands_beside_it(page):
    text = page()
    assert "Transcript of the agent that step #1 asked: 3 turns" in text
    assert f"Program submitted</b> #2 correct 2.01{TIMES}" in text
    assert text.count("The run has no such program.") == 1
    assert UNKNOWN.splitlines()[0].replace('"', "&#34;") in text


def test_nothing_of_a_transcript_is_read_as_markup(page):
    text = page()
    assert HOSTILE not in text
    assert "I begin. &lt;img src=x" in text


def test_a_long_transcript_is_cut_with_a_note(page, monkeypatch):
    monkeypatch.setattr(showing, "MAX_TURNS", 2)
    monkeypatch.setattr(showing, "MAX_TEXT", 100)
    text = page()
    assert "1 more turn: <code>evolve ui</code> shows the whole transcript." in text
    assert "more characters left out here" in text
