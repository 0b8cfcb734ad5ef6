"""Calls of the library before a scripted judge, in a folder of their own."""

import os
import sys
from pathlib import Path

import pytest

from evolve.app import launch as launching
from evolve.app.library import evaluation
from evolve.evaluation import LocalEvaluator

SCRIPT = Path(__file__).with_name("worker.py")

TASK = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x.relu()


def get_inputs():
    return [torch.ones(3)]


def get_init_inputs():
    return []
"""


def program(speedup: float | None, mark: str = "") -> str:
    """A program that the scripted judge takes for so many times as fast, None: for a wrong one."""
    said = "" if speedup is None else f"# speedup {speedup}\n"
    return (
        f"{said}import torch\n\nMARK = {mark!r}\n\n\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n        return x.relu() + {speedup or 0} * 0\n"
    )


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Judges are the scripted one; returns a function that sets its mode."""
    monkeypatch.chdir(tmp_path)
    mode: list[str] = []

    async def start(*args, **settings) -> LocalEvaluator:
        evaluator = LocalEvaluator(
            {"worker": [sys.executable, str(SCRIPT), *mode]}, dict(os.environ)
        )
        await evaluator.up()
        return evaluator

    monkeypatch.setattr(launching, "start_evaluator", start)
    monkeypatch.setattr(evaluation, "start_local", start)
    Path("relu.py").write_text(TASK)
    for number, speedup in enumerate((1.2, None, 2.5, 1.1)):
        Path(f"p{number}.py").write_text(program(speedup, f"p{number}"))
    return mode.append


PROGRAMS = ["p0.py", "p1.py", "p2.py", "p3.py"]
SEARCH = {
    "search": "seeds",
    "device": "cpu",
    "budget": {"evaluations": 4},
    "settings": {"initial": PROGRAMS},
}
