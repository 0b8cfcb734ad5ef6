"""`evolve steer` stores a change of a search under way, and says what cannot be meant."""

from pathlib import Path

import pytest

from evolve.cli.main import main
from evolve.store import Store
from tests.report.filling import Filling


@pytest.fixture
def filled(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        yield Filling(store=store, name="demo").search(4)


def test_a_change_is_stored(filled: Filling, tmp_path: Path, capsys) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("class ModelNew: pass\n")
    where = ("--store", str(filled.store.location))
    assert main(["steer", "demo", "budget", "evaluations=50", *where]) == 0
    assert main(["steer", "demo", "program", str(mine), *where]) == 0
    assert "the search takes it before its next step" in capsys.readouterr().out
    first, second = filled.store.steering(filled.run.id)
    assert (first.kind, first.value) == ("budget", "evaluations=50")
    assert second.value == mine.read_text()
    log = [(entry.action, entry.detail) for entry in filled.store.audit_log(2, "demo")]
    assert log == [("steered", "budget evaluations=50"), ("steered", "program of 1 lines")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("demo", "program", "/no/such.py"), "cannot be read"),
        (("demo", "program"), "the program is empty"),
        (("demo", "end", "in 5 minutes"), "end takes no value"),
        (("demo", "budget", "usd=5"), "names no limit"),
        (("other", "pause"), "no run 'other'"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_line(
    filled: Filling, capsys, words: tuple[str, ...], said: str
) -> None:
    assert main(["steer", *words, "--store", str(filled.store.location)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert filled.store.steering(filled.run.id) == []
