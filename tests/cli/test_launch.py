"""What a new run finds out before it begins: its task's audit, beside what the compiler says.

Invariants:
- both are under way at the same time; a task that fails its audit is said to, whatever else does;
- who ends the judge is named: the task's file only where it does so alone;
- a budget that buys fewer than ten evaluations is said, with one that buys them;
- whether a run opens with a verification is kept with it: on a GPU it does.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from evolve.app import launch as launching
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation import LocalEvaluator
from evolve.store import Store
from tests.cli.at_terminal import launch
from tests.cli.recording import settings
from tests.cli.test_compiler_seeds import TASK

SCRIPT = Path(__file__).parents[1] / "evaluation" / "scripted_worker.py"


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Runs are given a worker that speaks the protocol and does as the name of the task says."""
    monkeypatch.chdir(tmp_path)

    def use(mode: str) -> None:
        command = [sys.executable, str(SCRIPT), mode]

        async def start(config, compiles) -> LocalEvaluator:
            evaluator = LocalEvaluator({"worker": command}, dict(os.environ))
            await evaluator.up()
            return evaluator

        monkeypatch.setattr(launching, "start_evaluator", start)

    return use


def begin(name: str, *words: str) -> None:
    Path(f"{name}.py").write_text(TASK)
    asyncio.run(launch(settings(f"task=./{name}.py", f"name={name}", "device=cpu", *words)))


def test_a_compiler_that_ends_the_judge_is_not_the_tasks_fault(judge):
    judge("patient")
    with pytest.raises(EvaluatorUnavailable, match="the compiler took me along"):
        begin("patient")


@pytest.mark.sample(1)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_whether_a_run_opens_with_a_verification_is_kept_with_it(judge, device):
    judge("nothing")
    Path("start.py").write_text("import triton\n\n\nclass ModelNew:\n    pass\n")
    begin("sound", f"device={device}", "initial=[start.py]", "termination.evaluations=1")
    with Store.open("runs/evolve.db", read_only=True) as store:
        assert store.run("sound").config["opening"] is (device == "cuda")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["termination.evaluations=3"], "take e.g. termination.evaluations=60"),
        (["termination.proposals=6"], "take e.g. termination.proposals=60"),
        (["termination.wall_time=40s"], "termination.wall_time=2m buys ten"),
        (["termination.evaluations=10", "termination.wall_time=10m"], ""),
    ],
)
def test_a_budget_of_fewer_than_ten_evaluations_is_said_before_the_start(
    judge, words, said, capsys
):
    judge("nothing")
    Path("start.py").write_text("import triton\n\n\nclass ModelNew:\n    pass\n")
    begin("sound", "initial=[start.py]", "termination.stagnation=1", *words)
    before = capsys.readouterr().out.partition("auditing")[0]
    assert said in before
    assert bool(said) == ("termination." in before)


def test_a_task_that_ends_the_judge_is_named(judge):
    judge("nothing")
    with pytest.raises(UsageError, match=r"task exits: its file ended .* the task did it"):
        begin("exits")
