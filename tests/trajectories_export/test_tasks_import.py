"""`evolve tasks import`: a folder of modules becomes prompts.

1. Every file is counted once: sound, no task, broken, weak, duplicate, held out, licence, key.
2. Without --audit nothing of the folder is executed; with it, never in the process of the command.
3. Stopped, it goes on with the tasks that are left; what was found stays found.
4. The prompts are those of a search without a program, in the trainer's format, in the order of
   paths.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from evolve.cli.commands.look import tasks_import
from evolve.core.errors import UsageError
from evolve.core.task import Task
from evolve.trajectories.decontamination.task_sets import (
    Journal,
    Outcome,
    audit_all,
    read_folder,
)
from evolve.trajectories.first_prompt import first_prompt
from evolve.trajectories.loading import load_dataset

ROOT = Path(__file__).parents[2]
MODULE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {outcome}


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""
SOFTMAX = MODULE.format(outcome="torch.softmax(x, dim=-1)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sub-folders, a helper, a broken file, a copy, a task that is not free."""
    files = {
        "b/softmax.py": SOFTMAX,
        "a/sum.py": MODULE.format(outcome="x.sum(dim=-1)"),
        "c/copy.py": f"# the same\n{SOFTMAX}",
        "c/helper.py": "def helper(): ...\n",
        "c/broken.py": "class Model(:\n",
        "bound.py": f"# SPDX-License-Identifier: CC-BY-NC-4.0\n{MODULE.format(outcome='x.exp()')}",
        ".hidden/softmax.py": SOFTMAX,
    }
    for name, text in files.items():
        (tmp_path / "set" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name).write_text(text)
    return tmp_path / "set"


def outcomes(out: Path) -> dict[str, str]:
    lines = (out / "findings.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {one["path"]: one["outcome"] for one in found}


def test_every_file_is_counted_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert tasks_import.main([str(folder), "-o", str(tmp_path / "out")]) == 0
    assert outcomes(tmp_path / "out") == {
        "a/sum.py": "sound",
        "b/softmax.py": "sound",
        "bound.py": "licence forbids training",
        "c/broken.py": "broken",
        "c/copy.py": "duplicate",
        "c/helper.py": "no task",
    }
    said = capsys.readouterr().out
    assert "6 files: 2 sound, 1 no task, 1 broken, 1 duplicate, 1 licence forbids" in said


def test_a_licence_that_the_user_does_not_name_is_given_as_the_reason(folder: Path, tmp_path: Path):
    tasks_import.main([str(folder), "-o", str(tmp_path / "out"), "--licences-allowed", "MIT"])
    found = outcomes(tmp_path / "out")
    assert found["a/sum.py"] == found["bound.py"] == "licence is not one of --licences-allowed"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--test-share", "1"], "from 0 to below 1"), (["--held-out", "nowhere"], "nothing there")],
)
def test_a_refused_import_leaves_no_folder_behind(
    words: list[str], message: str, folder: Path, tmp_path: Path
):
    with pytest.raises(UsageError, match=message):
        tasks_import.main([str(folder), "-o", str(tmp_path / "out"), *words])
    assert not list(tmp_path.glob("out*"))


def test_prompts_are_those_of_a_search_without_a_program(folder: Path, tmp_path: Path):
    tasks_import.main([str(folder), "-o", str(tmp_path / "out"), "--language", "cpp"])
    rows = list(load_dataset(tmp_path / "out", "prompts"))
    assert [row["step_id"] for row in rows] == ["set:0", "set:1"]
    assert rows[1]["reference"] == SOFTMAX
    task = Task(name="softmax", source=SOFTMAX, size="gpu")
    asked = [{"role": one.role, "content": one.content} for one in first_prompt(task, "cpp")]
    assert rows[1]["prompt"] == asked
    assert "torch.softmax(x, dim=-1)" in rows[1]["prompt"][1]["content"]


@pytest.mark.parametrize("here", [".", "a/.."])
def test_every_row_has_a_file_also_if_the_folder_is_the_current_one(
    here: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(folder)
    tasks_import.main([here, "-o", str(tmp_path / "out")])
    lines = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    files = {one["step_id"]: one["path"] for one in map(json.loads, lines) if one["step_id"]}
    assert files == {"set:0": "a/sum.py", "set:1": "b/softmax.py"}
    for row in load_dataset(tmp_path / "out", "prompts"):
        assert row["reference"] == (folder / files[row["step_id"]]).read_text()


def test_tasks_that_are_held_out_are_no_prompts(folder: Path, tmp_path: Path):
    held_out = folder / "b"
    words = [str(folder), "-o", str(tmp_path / "out"), "--held-out", str(held_out)]
    tasks_import.main(words)
    assert outcomes(tmp_path / "out")["b/softmax.py"] == "held out"
    [row] = load_dataset(tmp_path / "out", "prompts")
    assert "x.sum(dim=-1)" in row["reference"]


def test_the_card_says_what_was_done(folder: Path, tmp_path: Path):
    words = [str(folder), "-o", str(tmp_path / "out"), "--held-out", str(folder / "b")]
    (folder / "renamed.py").write_text(re.sub(r"\bx\b", "values", SOFTMAX))
    tasks_import.main(words)
    assert outcomes(tmp_path / "out")["renamed.py"] == "held out"
    found = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    [renamed] = [one for one in map(json.loads, found) if one["path"] == "renamed.py"]
    assert renamed["detail"].startswith("same source as ")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "FOLDER:NUMBER, a task of that folder" in card
    assert "graphs were not compared" in card
    assert "search" not in card.partition("## Where it comes from")[0].partition("# Kernel")[2]


def test_a_task_that_holds_a_key_is_no_prompt(folder: Path, tmp_path: Path):
    (folder / "leaky.py").write_text(f"KEY = 'sk-proj-0123456789abcdefghij'\n{SOFTMAX}\nX = 1\n")
    tasks_import.main([str(folder), "-o", str(tmp_path / "out")])
    assert outcomes(tmp_path / "out")["leaky.py"] == "holds a key"
    assert len(list(load_dataset(tmp_path / "out", "prompts"))) == 2


def test_nothing_is_executed_without_an_audit(folder: Path, tmp_path: Path):
    mark = tmp_path / "executed"
    (folder / "marking.py").write_text(f"open({str(mark)!r}, 'w')\n{SOFTMAX}\nX = 1\n")
    tasks_import.main([str(folder), "-o", str(tmp_path / "out")])
    assert not mark.exists()


def test_a_folder_without_python_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="holds no Python file"):
        tasks_import.main([str(tmp_path), "-o", str(tmp_path / "out")])


@pytest.mark.slow
def test_an_import_that_was_killed_before_its_end_has_every_prompt_once(
    folder: Path, tmp_path: Path
):
    words = [str(folder), "-o", str(tmp_path / "out")]
    script = (
        "import os, signal, sys\n"
        "from evolve.cli.commands.look import tasks_import\n"
        "from evolve.trajectories.exporters.shards import Shards\n"
        "Shards.finish = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "tasks_import.main(sys.argv[1:])\n"
    )
    died = subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        timeout=60,
    )
    assert died.returncode == -signal.SIGKILL
    tasks_import.main(words)
    rows = list(load_dataset(tmp_path / "out", "prompts"))
    assert [row["step_id"] for row in rows] == ["set:0", "set:1"]


class Scripted:
    """An auditor that says of each task what its name asks for."""

    def __init__(self, answer: Callable[[Task], Sequence[dict[str, str]]]) -> None:
        self._answer = answer
        self.asked: list[str] = []
        self.under_way = 0

    async def audit(self, task: Task) -> list[dict[str, str]]:
        self.asked.append(task.name)
        self.under_way += 1
        assert self.under_way == 1, "what ends a worker has to be the only task that it has"
        await asyncio.sleep(0)
        self.under_way -= 1
        return list(self._answer(task))


def weak_if_sum(task: Task) -> list[dict[str, str]]:
    if task.name == "sum":
        raise UsageError("its file ended the process that loads it")
    return [{"name": "zeros", "passed_by": "default", "detail": ""}]


def test_each_auditor_has_one_task_at_a_time_and_all_are_audited(folder: Path, tmp_path: Path):
    candidates, _ = read_folder(folder)
    auditors = [Scripted(weak_if_sum), Scripted(weak_if_sum)]
    journal = Journal(tmp_path / "journal.jsonl")
    found = asyncio.run(audit_all(candidates, auditors, journal, lambda _: None))
    assert {one.path: one.outcome for one in found} == {
        "a/sum.py": Outcome.BROKEN,
        "b/softmax.py": Outcome.WEAK,
        "bound.py": Outcome.WEAK,
    }
    assert sorted(auditors[0].asked + auditors[1].asked) == ["bound", "softmax", "sum"]


def test_what_was_found_is_not_audited_again(folder: Path, tmp_path: Path):
    candidates, _ = read_folder(folder)
    path = tmp_path / "journal.jsonl"
    first = Scripted(weak_if_sum)
    asyncio.run(audit_all(candidates[:2], [first], Journal(path), lambda _: None))
    with path.open("ab") as journal:
        journal.write(b'{"path": "cut off by a ki')
    again = Scripted(weak_if_sum)
    found = asyncio.run(audit_all(candidates, [again], Journal(path), lambda _: None))
    assert len(found) == 3
    assert set(again.asked) == {one.task.name for one in candidates} - set(first.asked)


@pytest.mark.slow  # two workers and a tracer start
def test_an_audit_leaves_out_what_is_weak_broken_or_computes_the_same(folder: Path, tmp_path: Path):
    more = {
        "zero.py": MODULE.format(outcome="x * 0"),
        "exits.py": f"{SOFTMAX}\nimport os\nos._exit(3)\n",
        "raises.py": MODULE.format(outcome="x.no_such_method()"),
        "method.py": MODULE.format(outcome="x.softmax(dim=-1)"),
        "other.py": MODULE.format(outcome="torch.softmax(x, dim=0)"),
    }
    for name, text in more.items():
        (folder / name).write_text(text)
    words = [sys.executable, "-m", "evolve.cli.main", "tasks", "import", str(folder)]
    words += ["-o", str(tmp_path / "out"), "--audit", "--jobs", "2", "--device", "cpu"]
    done = subprocess.run(
        words,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = outcomes(tmp_path / "out")
    assert {path: one for path, one in found.items() if path in more} == {
        "zero.py": "weak",
        "exits.py": "broken",
        "raises.py": "broken",
        "method.py": "duplicate",
        "other.py": "sound",
    }
    assert found["b/softmax.py"] == "sound"
    assert "3 sound" in done.stdout
