"""What a search has found, as Python values.

Invariants:
1. The history has every step, as rows and as a table.
2. The winner's class is that of its exported text, and works.
3. A notebook shows the report in a frame; a run without a winner has None for what it lacks.
"""

import html
import re
from pathlib import Path

import pytest
import torch

import evolve
from tests.library.conftest import SEARCH, program


def test_the_history_has_every_step_as_a_row_and_in_a_table(judge):
    history = evolve.optimize("./relu.py", **SEARCH).history
    assert [row.operator for row in history] == ["seed"] * 4 + ["verify"]
    assert [row.best for row in history] == [1.2, 1.2, 2.5, 2.5, 2.5]
    assert [row.status for row in history[1:3]] == ["wrong_value", "correct"]
    table = history.to_pandas()
    assert list(table["speedup"].fillna(0)) == [1.2, 0, 2.5, 1.1, 2.5]
    assert list(table.columns[:2]) == ["sequence", "operator"]


def test_the_winners_class_takes_the_place_of_the_tasks(judge):
    result = evolve.optimize("./relu.py", **SEARCH)
    cls = result.module()
    assert torch.equal(cls()(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    assert evolve.Result(result.store, result.run).module() is cls
    assert Path(__import__(cls.__module__).__file__).read_text() == result.source


def test_a_notebook_shows_the_report_in_a_frame(judge, tmp_path):
    result = evolve.optimize("./relu.py", **SEARCH)
    frame = result._repr_html_()
    page = html.unescape(re.fullmatch(r'<iframe srcdoc="([^"]*)" [^>]*></iframe>', frame)[1])
    assert page == result.report(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == page
    assert "2.50" in page
    shown = re.fullmatch(r"<Result of run relu-1 in runs/evolve.db: 2.50. (.*)>", repr(result))
    assert shown[1] == "(95 % interval 2.25 to 2.75) over eager, verified in fresh processes"


def test_a_run_without_a_winner_says_so(judge):
    Path("p0.py").write_text(program(None))
    result = evolve.optimize("./relu.py", **SEARCH | {"budget": {"evaluations": 1}})
    assert (result.speedup, result.interval, result.source, result.evaluation) == (None,) * 4
    assert (result.is_gain, result.verified) == (False, False)
    assert "no correct and timed kernel" in repr(result)
    assert "srcdoc" in result._repr_html_()
    with pytest.raises(evolve.UsageError, match="no correct and timed kernel yet"):
        result.module()


def test_a_database_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(evolve.UsageError, match="nowhere"):
        evolve.Result(tmp_path / "nowhere.db")
