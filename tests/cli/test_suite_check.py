"""`evolve tasks list` and `evolve tasks check`.

Invariants:
- every task of a suite has a state and a reason, whatever it does;
- an answer that needs no work makes a task weak if it passes a timed case;
- what was checked is not checked again;
- messages name an option as the user gave it.
"""

import asyncio
import json
from pathlib import Path

import pytest

from evolve.app.bench.suite_check import Checked, State, check_suite, count, line_of, read_checked
from evolve.cli.commands.look.tasks import main
from evolve.cli.commands.look.tasks_suite import check_suite_tasks, list_suite
from evolve.core.errors import UsageError
from evolve.core.suites import Problem
from evolve.core.task import Case, Task

RELU = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{function}(x)

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""
CASES = (Case(name="tests", timed=False), Case(name="benchmark"))


class Auditor:
    """Answers by the task's name, in place of a worker."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def audit(self, task: Task) -> list[dict[str, str]]:
        self.asked.append(task.name)
        null = {"name": "zeros", "detail": ""}
        match task.name:
            case "cuda":
                raise UsageError("task cuda: Model.forward raised: 0 active drivers ([])")
            case "random":
                raise UsageError("task random: Model.forward is random")
            case "untimed":
                return [{**null, "passed_by": "tests/group1"}]
            case "timed":
                return [{**null, "passed_by": f"benchmark/group{at}"} for at in range(2)]
        return []


def read(spec: str) -> Task:
    if spec == "torn":
        raise UsageError("task torn: no divider")
    return Task(name=spec, source=f"# {spec}", cases=CASES)


def checked(names, known=(), has_gpu=False) -> tuple[list[Checked], list[str], list[Checked]]:
    """The states, the tasks that were asked for, and the states that were told."""
    auditor, told = Auditor(), []
    problems = [Problem(name, name, name) for name in names]
    found = asyncio.run(check_suite(problems, read, [auditor], known, told.append, has_gpu=has_gpu))
    return found, auditor.asked, told


NAMES = ["good", "torn", "cuda", "random", "untimed", "timed"]


def test_every_task_has_a_state_with_the_reason():
    found, _, told = checked(NAMES)
    assert told == found
    assert [one.label for one in found] == NAMES
    assert [one.state for one in found] == [
        State.SOUND, State.UNREADABLE, State.NEEDS_GPU, State.NOT_JUDGED, State.SOUND, State.WEAK,
    ]  # fmt: skip
    assert found[-1].detail == "passed by: zeros (2 timed cases)"
    assert all(one.detail for one in found if one.state is not State.SOUND)
    assert count(found)[State.SOUND] == 2


def test_on_a_gpu_no_task_waits_for_one():
    (one,), _, _ = checked(["cuda"], has_gpu=True)
    assert one.state is State.NOT_JUDGED


def test_what_was_checked_is_not_checked_again(tmp_path: Path):
    path = tmp_path / "found.jsonl"
    found, _, told = checked(NAMES[:3])
    path.write_text("".join(map(line_of, told)) + '{"label": "cut o')
    known = read_checked(path)
    assert known == found
    again, asked, _ = checked(NAMES, known)
    assert again[:3] == found
    assert asked == ["random", "untimed", "timed"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    texts = {
        "1_relu.py": RELU.format(function="relu", inputs="torch.randn(16, 16)"),
        "2_positive.py": RELU.format(function="relu", inputs="torch.zeros(16, 16)"),
        "3_broken.py": RELU.format(function="no_such_function", inputs="torch.randn(4)"),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return tmp_path


def test_a_suite_is_listed_without_running_it(checkout: Path, capsys):
    assert main(["list", "--suite", "kernelbench", "--path", str(checkout), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["task"] for one in listed["tasks"]] == [f"kernelbench:1/{n}" for n in (1, 2, 3)]
    assert listed["commit"] == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--suite", "kernelbench", "--path", "nowhere"],
            "--path nowhere: suite kernelbench: there is no",
        ),
        (
            ["--suite", "tritonbench_g", "--path", "no"],
            "--path no: suite tritonbench_g: there is no folder",
        ),
        (["--suite", "shipped", "--path", "."], "--path .: suite shipped needs no checkout"),
        (["--suite", "shipped", "--level", "7"], "--level 7: not in suite shipped"),
        (["--suite", "kernelbanch"], "--suite kernelbanch: there is no such suite"),
        (["--suite", "kernelbench"], "KERNELBENCH_PATH"),
        (["--suite", "kernelbench"], "Or give the checkout's folder: --path FOLDER."),
        (["--suite", "kernelbench", "--path", "no"], "the checkout's folder: --path FOLDER."),
    ],
)
@pytest.mark.parametrize("verb", [list_suite, check_suite_tasks])
def test_a_message_names_the_option_as_it_was_given(verb, words, said, monkeypatch):
    monkeypatch.delenv("KERNELBENCH_PATH", raising=False)
    with pytest.raises(UsageError) as refused:
        verb(words)
    assert said in str(refused.value)
    assert "path=" not in str(refused.value)


def test_a_worker_checks_every_task_of_a_suite(checkout: Path, capsys):
    words = ["check", "--suite", "kernelbench", "--path", str(checkout), "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    states = {one["label"]: one["state"] for one in answer["tasks"]}
    assert states == {"1/1": "sound", "1/2": "weak", "1/3": "not judged"}
    assert "no_such_function" in answer["tasks"][2]["detail"]
    assert answer["counts"] == {"sound": 1, "weak": 1, "not judged": 1}
