"""A task of several files: what it imports and reads is part of it, and of its revision."""

import json
import sys

import pytest
import torch

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.task import Task
from evolve.tasks import find_task
from evolve.worker.base.faults import CandidateFault
from evolve.worker.correctness.cases import load_task
from evolve.worker.ipc.tensor_buffer import Packed, unpack
from evolve.worker.judge.source_text import explain

MODULE = """
import json
from pathlib import Path
import torch
from torch import nn
from helper_of_this_task import doubled

TABLE = json.loads((Path(__file__).parent / "table.json").read_text())

class Model(nn.Module):
    def forward(self, x):
        from lazy_part.inner import shift
        return doubled(x) * TABLE["scale"] + shift()

def get_inputs():
    return [torch.ones(4)]

def get_init_inputs():
    return []
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "task.py").write_text(MODULE)
    (tmp_path / "helper_of_this_task.py").write_text(
        "import other_helper\ndef doubled(x):\n    return x * other_helper.TWO\n"
    )
    (tmp_path / "other_helper.py").write_text("TWO = 2\n")
    (tmp_path / "lazy_part").mkdir()
    (tmp_path / "lazy_part" / "__init__.py").write_text("")
    (tmp_path / "lazy_part" / "inner.py").write_text("def shift():\n    return 0.5\n")
    (tmp_path / "table.json").write_text(json.dumps({"scale": 3.0}))
    (tmp_path / "unrelated.py").write_text("raise SystemExit\n")
    return tmp_path


def outcome(task: Task) -> torch.Tensor:
    case = load_task(task).cases[0]
    return case.reference(case.model(1), case.inputs(1))[0]


def test_modules_and_data_beside_the_file_are_part_of_the_task(folder):
    task = find_task(str(folder / "task.py"))
    assert sorted(task.files) == [
        "helper_of_this_task.py", "lazy_part/__init__.py", "lazy_part/inner.py", "other_helper.py",
        "table.json",
    ]  # fmt: skip
    assert torch.equal(outcome(task), torch.full((4,), 6.5))
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("table.json", '{"scale": 5.0}', 10.5),
        ("other_helper.py", "TWO = 20\n", 60.5),
        ("lazy_part/inner.py", "def shift():\n    return 9\n", 15.0),
    ],
)
def test_another_content_of_a_file_is_another_revision_and_another_outcome(
    folder, name, text, value
):
    before = find_task(str(folder / "task.py"))
    outcome(before)
    (folder / name).write_text(text)
    after = find_task(str(folder / "task.py"))
    assert before.revision != after.revision
    assert torch.equal(outcome(after), torch.full((4,), value))
    assert torch.equal(outcome(before), torch.full((4,), 6.5))


def test_a_file_that_it_does_not_use_changes_nothing_but_of_a_folder_all_belongs_to_it(folder):
    before = [find_task(str(folder / "task.py")), find_task(str(folder))]
    (folder / "unrelated.py").write_text("x = 1\n")
    after = [find_task(str(folder / "task.py")), find_task(str(folder))]
    assert before[0].revision == after[0].revision
    assert before[1].revision != after[1].revision


def test_a_task_of_one_file_keeps_its_revision(tmp_path):
    plain = MODULE.replace("from helper_of_this_task import doubled", "doubled = lambda x: x")
    (tmp_path / "task.py").write_text(plain)
    assert find_task(str(tmp_path / "task.py")).files == {}
    assert "files" not in Task(name="t", source=plain).to_json()


def test_a_missing_file_is_named_with_a_remedy(folder):
    (folder / "table.json").unlink()
    with pytest.raises(UsageError, match=r"table\.json.*Path\(__file__\)\.parent"):
        load_task(find_task(str(folder / "task.py")))


def test_files_too_large_for_a_task_are_refused(folder):
    (folder / "table.json").write_bytes(b"0" * (17 << 20))
    with pytest.raises(UsageError, match=r"table\.json; 16 MiB are the most"):
        find_task(str(folder / "task.py"))


def test_a_program_that_wants_a_file_beside_the_task_is_told_that_it_is_one_file(folder):
    files = find_task(str(folder / "task.py")).files
    for said, name in (
        ("line 3 in <module>: No module named 'other_helper'", "other_helper.py"),
        ("ModuleNotFoundError: No module named 'lazy_part.inner'", "lazy_part/__init__.py"),
        ("No such file or directory: '/tmp/x/table.json'", "table.json"),
    ):
        fault = CandidateFault(Status.RUNTIME_EXCEPTION, said)
        assert f"{name} lies beside the task" in explain(fault, "", files)
    for said in (
        "No module named 'other'",
        "No such file or directory: 'mytable.json.gz'",
        "table",
    ):
        assert explain(CandidateFault(Status.RUNTIME_EXCEPTION, said), "", files) == said


SIBLING = """
import torch
from torch import nn
from sizes_of_this_task import Sizes

class Model(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes

    def forward(self, x):
        return x * self.sizes.width

def get_inputs():
    return [torch.ones(4)]

def get_init_inputs():
    return [Sizes(7)]
"""


def test_an_object_of_a_class_beside_the_task_reaches_a_process_without_its_files(tmp_path):
    (tmp_path / "task.py").write_text(SIBLING)
    text = "class Sizes:\n    def __init__(self, width):\n        self.width = width\n"
    (tmp_path / "sizes_of_this_task.py").write_text(text)
    case = load_task(find_task(str(tmp_path / "task.py"))).cases[0]
    packed = Packed([case.init_inputs(1)])
    del sys.modules["sizes_of_this_task"]
    (sizes,) = unpack(packed.trees[0], torch.empty(0, dtype=torch.uint8))
    assert (sizes.width, type(sizes).__name__) == (7, "Sizes")
