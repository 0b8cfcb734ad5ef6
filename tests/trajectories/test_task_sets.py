"""Folders of tasks, what is found in them and what rules leave out, without a worker."""

import asyncio
import json
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Label, Status
from evolve.core.model import CallStatus, Exchange, Message, ModelReply, ModelRequest
from evolve.core.task import Task
from evolve.trajectories.decontamination.exclusions import CHEATING, Reason, Rules, is_cheat
from evolve.trajectories.decontamination.task_sets import (
    Candidate,
    Finding,
    Journal,
    Outcome,
    audit_all,
    by_rules,
    count,
    read_folder,
    without_copies,
)
from evolve.trajectories.step import Known, Step
from tests.trajectories.searched import TASK, verdict

MODEL = "class Model:\n    x = {}\n"
KEY = "sk-proj-" + "a1B2" * 12


def task(source: str, name: str = "t") -> Task:
    return Task(name=name, source=source)


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def read(path: str) -> Task:
    text = Path(path).read_text()
    if text == "broken":
        raise UsageError("it does not parse")
    return task(text, Path(path).stem)


def test_a_folder_is_read_by_path_and_every_other_file_is_told_of(tmp_path):
    files = {
        "b": MODEL.format(2),
        "a": MODEL.format(1),
        "copy": f"# the same\n{MODEL.format(1)}",
        "helper": "def f(): ...\n",
        "wrong": "broken",
        "sub/c": MODEL.format(3),
        "__pycache__/d": MODEL.format(4),
        ".hidden": MODEL.format(5),
    }
    folder = written(tmp_path, files)
    candidates, findings = read_folder(folder, read)
    assert [one.path for one in candidates] == ["a.py", "b.py", "sub/c.py"]
    assert {one.path: (one.outcome, one.detail) for one in findings} == {
        "copy.py": (Outcome.DUPLICATE, "same text as a.py"),
        "helper.py": (Outcome.NO_TASK, ""),
        "wrong.py": (Outcome.BROKEN, "it does not parse"),
    }


def test_a_folder_without_python_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="holds no Python file"):
        read_folder(tmp_path, read)


def test_findings_survive_and_a_line_that_was_cut_is_made_again(tmp_path):
    path = tmp_path / "journal"
    first = Journal(path)
    first.add(Finding("a.py", "1", Outcome.SOUND, signature="s"))
    first.add(Finding("b.py", "2", Outcome.WEAK, "passed by: zeros"))
    path.write_bytes(path.read_bytes() + b'{"path": "c.py", "rev')
    again = Journal(path)
    assert again.known == first.known
    assert again.known["b.py", "2"].outcome is Outcome.WEAK
    assert Journal(tmp_path / "absent").known == {}


class Auditor:
    """Knows of each task by its source; counts how many it has at once."""

    def __init__(self, **weaknesses: list[str]) -> None:
        self.weaknesses, self.asked, self.at_once = weaknesses, [], 0

    async def audit(self, task: Task) -> list[dict[str, str]]:
        self.at_once += 1
        assert self.at_once == 1
        self.asked.append(task.name)
        await asyncio.sleep(0)
        self.at_once -= 1
        if task.name == "broken":
            raise UsageError("no inputs")
        return [{"name": name} for name in self.weaknesses.get(task.name, [])]


@pytest.mark.slow
def test_every_task_is_audited_once_and_told_in_order(tmp_path):
    names = ["a", "weak", "broken", "known"]
    candidates = [Candidate(name, task(MODEL.format(n), name)) for n, name in enumerate(names)]
    journal = Journal(tmp_path / "journal")
    journal.add(Finding("known", candidates[3].task.revision, Outcome.WEAK, "before"))
    auditors = [Auditor(weak=["zeros", "ones", "zeros"]) for _ in range(2)]
    told: list[Finding] = []
    found = asyncio.run(audit_all(candidates, auditors, journal, told.append))
    assert [one.path for one in found] == names
    assert [one.detail for one in found[1:]] == ["passed by: zeros, ones", "no inputs", "before"]
    assert [one.outcome for one in found] == [
        Outcome.SOUND, Outcome.WEAK, Outcome.BROKEN, Outcome.WEAK,
    ]  # fmt: skip
    assert sorted(name for one in auditors for name in one.asked) == ["a", "broken", "weak"]
    assert {one.path for one in told} == {"a", "weak", "broken"}
    lines = (tmp_path / "journal").read_text().splitlines()
    assert {json.loads(line)["path"] for line in lines} == set(names)


class Twins:
    """Takes tasks with the same last letter for the same."""

    def same(self, one: Task, other: Task) -> bool:
        return one.name[-1] == other.name[-1]


def test_a_task_that_computes_the_same_as_an_earlier_one_is_its_duplicate():
    findings = [
        Finding("1x", "", Outcome.SOUND, signature="s"),
        Finding("2y", "", Outcome.SOUND, signature="s"),
        Finding("3y", "", Outcome.SOUND, signature="s"),
        Finding("4y", "", Outcome.SOUND, signature="other"),
        Finding("5y", "", Outcome.SOUND),
        Finding("6y", "", Outcome.WEAK, signature="s"),
    ]
    tasks = {one.path: task("", one.path) for one in findings}
    found = list(without_copies(findings, tasks, Twins()))
    assert [one.path for one in found] == [one.path for one in findings]
    assert [(one.path, one.detail) for one in found if one.outcome is Outcome.DUPLICATE] == [
        ("3y", "computes the same as 2y")
    ]


def test_tasks_that_rules_leave_out_are_found_with_the_reason():
    sources = {
        "free": MODEL.format(1),
        "closed": f"# SPDX-License-Identifier: CC-BY-NC-4.0\n{MODEL.format(2)}",
        "keyed": f"{MODEL.format(3)}# {KEY}\n",
    }
    candidates = [Candidate(name, task(text, name)) for name, text in sources.items()]
    found = list(by_rules(candidates, Rules(keys=()), None))
    assert {one.path: one.outcome for one in found} == {
        "closed": Outcome.LICENCE, "keyed": Outcome.KEY,
    }  # fmt: skip


def test_outcomes_are_counted_in_their_order():
    outcomes = [Outcome.KEY, Outcome.SOUND, Outcome.KEY]
    counts = count(Finding("", "", outcome) for outcome in outcomes)
    assert list(counts.items()) == [(Outcome.SOUND, 1), (Outcome.KEY, 2)]


def step(**fields) -> Step:
    return Step(**{"task": TASK, "evaluation": verdict(1.0)} | fields)


@pytest.mark.parametrize("label", sorted(CHEATING))
def test_a_finding_of_cheating_counts_then_and_later(label):
    assert is_cheat(step(evaluation=verdict(1.0, labels=[label])))
    assert is_cheat(step(later=(verdict(1.0, labels=[label]),)))


def test_a_verdict_of_cheating_counts_then_and_later():
    assert is_cheat(step(evaluation=verdict(status=Status.HACK)))
    assert is_cheat(step(later=(verdict(status=Status.HACK),)))
    assert not is_cheat(step(evaluation=verdict(1.0, labels=["torch_share"])))
    assert not is_cheat(step(evaluation=None))
    assert Label("x", "").name not in CHEATING


def exchange(prompt: str, reply: str) -> Exchange:
    request = ModelRequest(messages=(Message("user", prompt),), model="m")
    return Exchange(request, ModelReply(status=CallStatus.COMPLETED, text=reply))


@pytest.mark.parametrize(
    "fields",
    [
        {"exchanges": (exchange(KEY, ""),)},
        {"exchanges": (exchange("", KEY),)},
        {"note": KEY},
        {"source": KEY},
        {"parent": Known(program="p", source=KEY)},
    ],
    ids=["prompt", "reply", "note", "source", "parent"],
)
def test_a_key_anywhere_in_a_step_leaves_it_out(fields):
    assert Rules(keys=()).of_step(step(**fields)) is Reason.KEY
    assert Rules(keys=()).of_step(step()) is None


@pytest.mark.parametrize(
    ("allowed", "reason"),
    [((), None), (("a/*", "b/y"), None), (("a/*",), Reason.MODEL), (("A/*", "b/y"), Reason.MODEL)],
)
def test_every_model_behind_a_step_has_to_be_allowed(allowed, reason):
    rules = Rules(models=allowed, keys=())
    assert rules.of_step(step(models=frozenset({"a/x", "b/y"}))) is reason
