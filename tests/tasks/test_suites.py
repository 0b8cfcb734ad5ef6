"""Suites of this package and of others.

Invariants:
- a suite that another package registers is benched and named in `task=` like those of this one;
- what is wrong with it, or with what is asked of it, is one message with a remedy.
"""

from pathlib import Path

import pytest

from evolve.app.bench.plan import make_plan
from evolve.core.errors import UsageError
from evolve.tasks import find_task
from evolve.tasks.suites import suite_problems, suites

SUITE = (
    """
import os
from pathlib import Path

from evolve.core.suites import Problem, TaskText

SOURCE = """
    'r"""'
    """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * FACTOR

FACTOR = {factor}

def get_inputs():
    return [torch.rand(64, 64)]

def get_init_inputs():
    return []
"""
    '"""'
    """

class Mine:
    name = "mine"
    variable = "MINE_PATH"
    levels = ("easy",)

    def problems(self, checkout):
        folder = Path(checkout or os.environ["MINE_PATH"])
        return [
            Problem(f"mine:{path.stem}", path.stem, path.stem, path.suffix[1:])
            for path in sorted(folder.iterdir())
        ]

    def task(self, label, checkout):
        (path,) = Path(checkout or os.environ["MINE_PATH"]).glob(label + ".*")
        return TaskText(SOURCE.replace("{factor}", path.read_text()), category="elementwise")
"""
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site, folder = tmp_path / "site", tmp_path / "checkout"
    about = site / "mine-1.0.dist-info"
    about.mkdir(parents=True)
    folder.mkdir()
    (site / "mine_suite.py").write_text(SUITE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    points = "mine = mine_suite:Mine\nbroken = mine_suite:Absent\n"
    (about / "entry_points.txt").write_text(f"[evolve.suites]\n{points}")
    for name, factor in (("two.easy", "2"), ("three.easy", "3"), ("four.hard", "4")):
        (folder / name).write_text(factor)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("MINE_PATH", raising=False)
    return folder


def test_a_suite_of_another_package_is_benched_by_name(checkout: Path, monkeypatch):
    monkeypatch.setenv("MINE_PATH", "/nonexistent")
    assert {"kernelbench", "shipped", "mine"} <= {*suites()}
    plan = make_plan(["suite=mine", f"path={checkout}", "search=seeds", "device=cpu"])
    assert [entry.task.label for entry in plan.entries] == ["three", "two"]
    assert plan.entries[0].config["name"] == "mine-three-seeds"
    assert plan.entries[0].config["task"] == "mine:three"


def test_its_tasks_are_named_in_task(checkout: Path, monkeypatch):
    monkeypatch.setenv("MINE_PATH", str(checkout))
    task = find_task("mine:four")
    assert (task.name, task.category) == ("mine:four", "elementwise")
    assert "FACTOR = 4" in task.source


def test_a_shipped_task_is_the_same_by_its_suite_as_by_its_name():
    for label in (problem.label for problem in suite_problems("shipped")):
        by_suite, by_name = find_task(f"shipped:{label}"), find_task(label)
        assert by_suite.cases == by_name.cases
        assert by_suite.seeds == by_name.seeds != ()


def test_levels_and_problems_choose(checkout: Path):
    def labels(**asked):
        return [problem.label for problem in suite_problems("mine", path=str(checkout), **asked)]

    assert labels() == ["three", "two"]
    assert labels(levels=["hard"]) == ["four"]
    assert labels(only=["four", "two"]) == ["four", "two"]


@pytest.mark.parametrize(
    ("name", "asked", "words"),
    [
        ("min", {}, ["suite=min", "no such suite", "Did you mean mine?"]),
        ("broken", {}, ["mine_suite:Absent of mine", "AttributeError", "Mend or uninstall"]),
        ("mine", {"levels": ["odd"]}, ["level=[odd]", "it has easy, hard"]),
        ("mine", {"only": ["thre"]}, ["suite mine has no problem 'thre'", "did you mean three?"]),
        ("kernelbench", {"path": "no"}, ["path=no: suite kernelbench: there is no folder no"]),
        ("kernelbench", {"path": "no"}, ["Or give the checkout's folder: path=FOLDER."]),
        ("shipped", {"path": "here"}, ["path=here", "leave it out"]),
        ("shipped", {"levels": ["1"]}, ["level=[1]", "leave this out"]),
    ],
)
def test_what_cannot_be_is_one_message_with_a_remedy(checkout: Path, name, asked, words):
    with pytest.raises(UsageError) as caught:
        suite_problems(name, **{"path": str(checkout)} | asked if name == "mine" else asked)
    assert all(word in str(caught.value) for word in words), caught.value


WHOLE = """
import torch
model_name = "nobody/model-of-this-test"

class Model(torch.nn.Module):
    pass

def get_inputs():
    return []

def get_init_inputs():
    return []
"""


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    for level in ("level1", "level4"):
        folder = tmp_path / "KernelBench" / level
        folder.mkdir(parents=True)
        (folder / "1_whole.py").write_text(WHOLE)
    return tmp_path


def test_a_whole_model_without_its_weights_is_refused_with_the_reason(kernelbench: Path):
    assert find_task("kernelbench:1/1", checkout=kernelbench).source == WHOLE
    with pytest.raises(UsageError, match=r"level 4 takes whole models.*It needs .*leave level 4"):
        find_task("kernelbench:4/1", checkout=kernelbench)


def test_a_problem_that_cannot_be_read_is_left_out_and_the_others_are_benched(kernelbench: Path):
    words = ["suite=kernelbench", f"path={kernelbench}", "search=seeds", "device=cpu"]
    plan = make_plan([*words, "level=[1,4]"])
    assert [entry.task.label for entry in plan.entries] == ["1/1"]
    ((label, reason),) = plan.left_out
    assert label == "4/1"
    assert "level 4 takes whole models" in reason
    with pytest.raises(UsageError, match="level 4 takes whole models"):
        make_plan([*words, "level=[4]"])


def test_the_commit_of_the_checkout_is_part_of_each_runs_configuration(kernelbench: Path):
    words = ["suite=kernelbench", f"path={kernelbench}", "search=seeds", "device=cpu"]
    assert make_plan(words).commit == ""
    (kernelbench / ".git" / "refs").mkdir(parents=True)
    (kernelbench / ".git" / "HEAD").write_text("ref: refs/main\n")
    (kernelbench / ".git" / "refs" / "main").write_text("cd" * 20 + "\n")
    plan = make_plan(words)
    assert plan.commit == "cd" * 20
    assert plan.config["suite"] == {"name": "kernelbench", "commit": "cd" * 20}


def test_a_copy_within_another_repository_has_no_commit(kernelbench: Path):
    (kernelbench.parent / ".git").mkdir()
    (kernelbench.parent / ".git" / "HEAD").write_text("ab" * 20)
    words = ["suite=kernelbench", f"path={kernelbench}", "search=seeds", "device=cpu"]
    assert make_plan(words).commit == ""
