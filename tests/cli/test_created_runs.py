"""A run that was created without a judge is made ready when it is resumed, also after a kill."""

import signal
import subprocess
import sys

import pytest

from evolve.store import Store


@pytest.fixture
def evolve(evolve_here):
    return evolve_here


TASK = '''"""Row sums from the end."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x.flip(1), dim=1).flip(1)


def get_inputs():
    return [torch.rand(16, 256)]


def get_init_inputs():
    return []
'''


KILLED = """
import os, signal, sys
from evolve.cli.main import main
from evolve.store import Store

setattr(Store, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
main(["resume", "mine"])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("killed_at", ["record_compiled", "record_reference", "record_audit"])
def test_a_run_that_was_created_without_a_judge_is_prepared_when_it_is_resumed(
    evolve, tmp_path, killed_at
):
    """Its compiled reference was never asked for: "nothing is left to propose", at once."""
    (tmp_path / "mine.py").write_text(TASK)
    words = ("task=./mine.py", "search=kernel_smith", "operators=llm", "device=cpu", "name=mine")
    assert evolve("run", *words, "--create").returncode == 0
    command = [sys.executable, "-c", KILLED, killed_at]
    killed = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = evolve("resume", "mine")
    assert resumed.returncode == 0, resumed.stderr
    with Store.open(tmp_path / "runs" / "evolve.db", read_only=True) as store:
        run = store.run("mine")
        assert run.config["audit"] is not None
        assert run.config["reference"] is not None
        assert [each.variant for each in run.task.compiled] == ["default"]
        assert [step.operator for step in store.steps(run.id)] == ["inductor"]
