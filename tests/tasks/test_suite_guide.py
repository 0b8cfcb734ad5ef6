"""The suite that the guide shows works as it stands there."""

import re
from pathlib import Path

import pytest

from evolve.app.bench.plan import make_plan
from evolve.core.errors import UsageError
from evolve.tasks import find_task

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "examples" / "guides" / "add_a_suite.md"
TASK = ROOT / "examples" / "tasks" / "row_sum" / "task.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    ((group, point),) = re.findall(r'entry-points\."(.*)"\]\n(.*)\n', GUIDE.read_text())
    site, easy = tmp_path / "site", tmp_path / "checkout" / "easy"
    about = site / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    easy.mkdir(parents=True)
    (site / "my_suite.py").write_text(code)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{point.replace(chr(34), '')}\n")
    (easy / "sum.py").write_text(TASK.read_text())
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("MINE_PATH", raising=False)
    return easy.parent


def test_it_is_benched_by_name(checkout: Path):
    words = ["suite=mine", f"path={checkout}", "level=[easy]", "search=seeds", "device=cpu"]
    assert [entry.config["task"] for entry in make_plan(words).entries] == ["mine:sum"]


def test_its_task_can_be_searched_alone(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MINE_PATH", str(checkout))
    assert find_task("mine:sum").source == TASK.read_text()
    with pytest.raises(UsageError, match="no such problem"):
        find_task("mine:other")


def test_it_says_which_folder_is_missing(checkout: Path):
    with pytest.raises(UsageError, match="MINE_PATH"):
        find_task("mine:sum")
    with pytest.raises(UsageError, match=r"MINE_PATH .*Or give the checkout's folder: path=FOLDER"):
        make_plan(["suite=mine", "search=seeds", "device=cpu"])
