"""A user's own baseline that is wrong.

Invariants:
1. The run ends with status 2 and one line that names the baseline and why it fails.
2. `show` says so afterwards.
"""

from dataclasses import replace
from pathlib import Path

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.store import Store
from evolve.testing.synthetic import synthetic_task
from tests.cli.recording import settings

WRONG = "class ModelNew:\n    wrong = True\n"


def recorded_failure(path: Path) -> None:
    """A run `demo` whose baseline was judged wrong, and that stopped there."""
    task = synthetic_task()
    config = settings("baseline=file:mine.py", "device=cpu", f"store.path={path}")
    config["opponents"] = {"file:mine.py": WRONG}
    verdict = Evaluation(
        status=Status.WRONG_VALUE,
        stage=Stage.SMOKE,
        fidelity=Fidelity.SEARCH,
        task_revision=task.revision,
        device_class="synthetic",
        evaluator_version="synthetic-1",
    )
    verdict = replace(verdict, feedback="case only:\n  element 3 is off by 2.0")
    with Store.open(path, create=True) as store:
        run = store.create_run(name="demo", task=task, config=config, seed=0)
        store.claim(run.id)
        proposal = Proposal(program=Program(WRONG), note="file:mine.py")
        ticket = store.propose(store.ask(run.id, "baseline", ()), proposal)
        store.tell(store.evaluated(ticket, verdict), None, None)
        store.release(run.id, "interrupted", "")


def test_a_wrong_baseline_ends_the_run_with_one_line(evolve, tmp_path: Path):
    recorded_failure(tmp_path / "runs" / "evolve.db")
    done = evolve("resume", "demo", "device=replay", "device.run=demo")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert len(done.stderr.splitlines()) == 1
    assert "file:mine.py" in done.stderr
    assert "element 3 is off by 2.0" in done.stderr
    shown = evolve("show", "demo").stdout
    assert "The baseline mine.py fails the check itself (wrong value)" in shown
    assert len(evolve("list").stdout.splitlines()) == 2
