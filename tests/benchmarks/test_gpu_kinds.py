"""The quick look at KernelBench levels, as far as it goes without a GPU.

Invariants:
- what is off or failed is in no mean, and shares are of all tasks that were asked for;
- every task leaves a line, whatever becomes of its process; what is done is not done again;
- nobody asks CUDA anything before the parent forks.
"""

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.benchmarks import json_lines
from tests.benchmarks.gpu_kinds import asked
from tests.benchmarks.kinds_child import difference, weigh
from tests.benchmarks.kinds_summary import Gains, compiled, gains, seen, summarise

ROOT = Path(__file__).parents[2]
TASK = """
import os
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if x.device.type == "cpu":
            {does}
        return x + x

def get_inputs():
    return [torch.rand(1024, 1024)]

def get_init_inputs():
    return []
"""


def row(task: str, kind: str, ms: float, **about: object) -> dict[str, object]:
    return {"task": task, "kind": kind, "ms": ms} | about


ROWS = [
    row("1/1", "eager", 4.0),
    row("1/1", "compile", 2.0, off=0.0),
    row("1/1", "variant default", 1.0, own=False, off=1e-6),
    row("1/1", "variant default, own kernels", 2.0, own=True, off=1e-6),
    {"task": "1/1", "kind": "done"},
    row("1/2", "eager", 4.0),
    {"task": "1/2", "kind": "compile", "error": "RuntimeError()"},
    row("1/2", "variant default, own kernels", 8.0, own=True, off=1e-6),
    row("1/2", "variant default, own kernels with tails", 0.1, own=True, off=0.5),
    row("1/2", "variant default, own kernels, work cut evenly", 0.1, own=True, off=math.nan),
    {"task": "1/2", "kind": "done"},
    row("2/1", "eager", 5.0),
    row("2/1", "compile", 1.0, off=0.0),
    {"task": "2/1", "kind": "variant default, own kernels", "own": True, "error": "OutOfResources"},
]


def test_programs_that_are_off_are_in_no_figure():
    tasks = list(seen(ROWS).values())
    own = gains(tasks, 4, "eager", own=True)
    assert own.gains == [2.0, 0.5]
    assert own.mean == pytest.approx(1.0)
    assert own.amsr == pytest.approx(2.0 / 4)
    assert own.shares == (0.25, 0.25, 0.25, 0.25, 0.0)
    assert gains(tasks, 4, "eager", own=False).gains == [4.0, 0.5]
    assert gains(tasks, 4, "compile", own=True).gains == [1.0]
    assert compiled(tasks, 4) == Gains([2.0, 5.0], 4)


def test_a_task_that_was_looked_at_twice_has_its_last_rows():
    again = [row("1/1", "eager", 8.0), {"task": "1/1", "kind": "compile", "error": "none"}]
    task = seen([*ROWS, *again])["1/1"]
    assert (task.ms("eager"), task.ms("compile"), task.best(own=True)) == (8.0, None, 2.0)


def test_the_summary_has_a_line_for_each_task_and_means_of_each_level(capsys):
    summarise(ROWS, ["1/1", "1/2", "1/3", "2/1"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "1/1 | 4.000 ms | compile: 2.00 | default: 4.00 | default, own kernels: 2.00"
    assert "default, own kernels with tails: off by 0.5, left out" in lines[1]
    assert "work cut evenly: off by nan, left out" in lines[1]
    assert lines[2].endswith("default, own kernels: OutOfResources")
    (level,) = (line for line in lines if line.startswith("level 1"))
    assert level == "level 1: 2 of 3 tasks have a time of eager"
    assert (
        sum("own kernels only: 2 right, 1.00 times as fast as eager" in one for one in lines) == 2
    )
    assert sum("1.00 times as fast as compile" in one and "of 2 tasks" in one for one in lines) == 1
    assert "all: 3 of 4 tasks have a time of eager" in lines


def checkout(folder: Path, **tasks: str) -> Path:
    """One with these tasks in its level 1, by what their forward does on a CPU."""
    level = folder / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for at, (name, does) in enumerate(tasks.items(), 1):
        (level / f"{at}_{name}.py").write_text(TASK.format(does=does))
    return folder


def test_tasks_are_named_for_all_levels_or_for_one(tmp_path, monkeypatch):
    folder = checkout(tmp_path, One="pass", Two="pass", Three="pass")
    (folder / "KernelBench" / "level1").with_name("level2").mkdir()
    (folder / "KernelBench" / "level2" / "1_Four.py").write_text("")
    monkeypatch.setenv("KERNELBENCH_PATH", str(folder))
    assert list(asked([1, 2], "1-2")) == ["1/1", "1/2", "2/1"]
    assert list(asked([1, 2], "1/2-3,2/1")) == ["1/2", "1/3", "2/1"]
    assert list(asked([1], "3,2/1")) == ["1/3"]


def test_a_task_is_weighed_without_any_memory():
    module = {}
    exec(TASK.format(does="raise AssertionError('it ran')"), module)
    inputs, outputs = 4 << 20, 4 << 20
    assert weigh(module) == inputs + outputs + 5 * (inputs + outputs) // 4


def test_outcomes_are_compared_by_the_largest_value():
    expected = torch.tensor([[1.0, -4.0], [2.0, 0.0]])
    assert difference(expected + torch.tensor([0.0, 1.0]), expected) == 0.25
    assert math.isnan(difference((expected * math.nan,), (expected,)))
    with pytest.raises(AssertionError, match="not"):
        difference(expected[:1], expected)


WATCHED = "torch.utils._python_dispatch._get_current_dispatch_mode()"


@pytest.mark.slow
def test_every_task_leaves_a_line_and_none_is_done_twice(tmp_path):
    folder = checkout(
        tmp_path,
        Refuses="raise ValueError('no')",
        Large="raise torch.OutOfMemoryError('large')",
        Dies="os._exit(9)",
        Watched=f"if {WATCHED}: raise torch.OutOfMemoryError('not by a program')",
    )
    lines = tmp_path / "lines.jsonl"
    command = [sys.executable, "-m", "tests.benchmarks.gpu_kinds", "1", "--device", "cpu"]
    command += ["--out", str(lines), "--seconds", "60"]
    known = {}
    for _ in range(2):
        subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | {"KERNELBENCH_PATH": str(folder)},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        known = {}
        for each in json_lines.read(lines):
            known.setdefault(each["task"], []).append(each["kind"])
    assert known["1/1"] == ["eager", "done"]
    assert known["1/2"] == ["memory", "eager", "done"]
    assert known["1/3"] == ["died", "died"]
    assert known["1/4"] == ["eager", "compile", "memory", "eager", "memory", "done"]


def test_a_line_after_one_that_was_cut_off_stands_by_itself(tmp_path):
    lines = tmp_path / "lines.jsonl"
    json_lines.add(lines, {"task": "1/1"})
    with lines.open("a") as file:
        file.write('{"task": "1/2", "ki')
    json_lines.add(lines, {"task": "1/3"})
    json_lines.add(lines, {"task": "1/4"})
    assert [row["task"] for row in json_lines.read(lines)] == ["1/1", "1/3", "1/4"]
    assert lines.read_text().count("\n") == 4


SPY = """
import os, sys, torch
usual = torch.cuda.is_available
def asked():
    assert os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1"
    return usual()
torch.cuda.is_available = asked
import tests.benchmarks.{name}
from tests.benchmarks.gpu_forks import prepare
prepare()
from torch._inductor import async_compile
assert async_compile.get_compile_threads() == 1
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpu_kinds", pytest.param("bench_tuner", marks=pytest.mark.slow)])
def test_nobody_asks_cuda_before_the_parent_forks(name):
    subprocess.run([sys.executable, "-c", SPY.format(name=name)], cwd=ROOT, check=True)
