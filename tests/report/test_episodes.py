"""Transcripts of coding agents in the report.

Invariants:
1. A program of the way to the best that an agent submitted has the agent's transcript beside it.
2. Verdicts in it are the run's; nothing of it is read as markup; its length is bounded.
3. It is found however many programs the agent submitted before, and read once for all of them.
"""

from pathlib import Path

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.llm.programs.turns import turns
from evolve.report.run import episodes as showing
from evolve.report.run.html import write_report
from evolve.report.text import TIMES
from evolve.store import Store
from tests.report.filling import TASK, Filling, evaluation, source
from tests.serve.ui.episodes import RUN, UNKNOWN, add_episode, add_episodes, transcript
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


@pytest.fixture
def filling(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        yield Filling(store=store, name=RUN).search(1)


def episode(filling: Filling, submissions: int, first: int = 700) -> list[int]:
    """The steps of the programs that an agent submits; each is faster than the one before."""
    programs = [source(first + number, 2) for number in range(submissions)]
    add_episode(filling, transcript(programs, "wait"))
    return [submit(filling, program, first + number) for number, program in enumerate(programs)]


def submit(filling: Filling, program: str, number: int) -> int:
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, number / 1000)
    return filling.step("agent", Proposal(program=Program(program)), verdict).sequence


def shown(filling: Filling, numbers: list[int]) -> dict[int, int]:
    """The steps that have an episode, and the step that asked the agent."""
    steps = [filling.store.step(filling.run.id, number) for number in numbers]
    found = showing.episodes(filling.store, filling.run, steps)
    return {number: one.sequence for number, one in found.items()}


@pytest.mark.parametrize("submissions", [1, 8, 9, 10, 30])
def test_the_best_program_may_be_any_submission_of_its_episode(filling, submissions):
    last = episode(filling, submissions)[-1]
    assert shown(filling, [last]) == {last: 1}


@pytest.mark.parametrize(("later", "is_found"), [(7, True), (8, False)])
def test_an_episode_is_looked_for_among_the_newest_before_its_program(filling, later, is_found):
    known = source(900, 2)
    add_episode(filling, transcript([known], "wait"))
    for number in range(later):
        episode(filling, 3, first=700 + 10 * number)
    late = submit(filling, known, 990)
    assert shown(filling, [late]) == ({late: 1} if is_found else {})


def test_a_transcript_is_read_once_however_many_of_its_programs_are_on_the_way(
    filling, monkeypatch
):
    steps = [*episode(filling, 8), *episode(filling, 8, first=800)]
    read = []
    monkeypatch.setattr(showing, "turns", lambda text: read.append(text) or turns(text))
    assert shown(filling, steps) == {steps[7]: 1, steps[15]: 10}
    assert len(read) == 2


def test_programs_of_operators_that_ask_no_agent_have_no_episode(filling, monkeypatch):
    first = episode(filling, 1)[0]
    program = Program(filling.store.source(filling.store.step(filling.run.id, first).program))
    verdict = evaluation(TASK, Status.CORRECT, Fidelity.SEARCH, 0.9)
    numbers = [filling.step("tune", Proposal(program=program), verdict).sequence for _ in range(9)]
    assert shown(filling, numbers) == {}
