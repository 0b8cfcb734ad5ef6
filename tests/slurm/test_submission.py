"""`evolve run -m hydra/launcher=...`: sweeps as jobs, here of submitit's local launcher.

Invariants:
1. Each run of a sweep is a job in a process of its own; the command has the highest of their exit
   statuses, and the first of their errors.
2. A job that SIGUSR1 stops is started again and goes on with its run.
3. A launcher that cannot work is refused in one line with the remedy.
"""

import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from evolve.cli.commands.run.submitted import named
from evolve.cli.main import main
from evolve.store import Store
from tests.cli.recording import settings
from tests.slurm.stub import judged, stub

SEARCH = (
    *("task=rmsnorm", "task_config.size=tiny", "device=cpu", "search=quick", "baseline=eager"),
    *("store.reuse=false", "hydra/launcher=submitit_local"),
)
JOBS = Path("runs/jobs/.submitit")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def interrupt_when(count: int, folder: Path) -> None:
    """Send SIGUSR1 to the only job, a child of its controller, after so many verdicts."""
    deadline = time.monotonic() + 60
    while len(judged(folder)) < count and time.monotonic() < deadline:
        time.sleep(0.05)
    (controller,) = (path.name for path in JOBS.iterdir() if path.name.isdigit())
    (job,) = Path(f"/proc/{controller}/task/{controller}/children").read_text().split()
    os.kill(int(job), signal.SIGUSR1)


@pytest.mark.slow
def test_a_job_that_sigusr1_stops_is_started_again_and_goes_on(folder: Path, capfd):
    thread = threading.Thread(target=interrupt_when, args=(3, folder))
    thread.start()
    words = (*SEARCH, stub(folder, 0.2), "termination.evaluations=8")
    assert main(["run", "-m", *words]) == 0
    thread.join()
    with Store.open("runs/evolve.db", read_only=True) as store:
        (run,) = store.runs()
        actions = [entry.action for entry in store.audit_log(20)]
        verdicts = sum(step.status is not None for step in store.steps(run.id))
    assert actions == ["started", "interrupted", "resumed", "finished"]
    assert run.name.startswith("rmsnorm-job-")
    assert len(judged(folder)) == verdicts
    assert f"jobs: their output is in {JOBS}" in capfd.readouterr().out


def test_the_error_of_a_job_is_that_of_the_command(folder: Path, capfd):
    Path("broken.py").write_text("class Model: BROKEN = True\n")
    words = ("task=./broken.py", *SEARCH[1:], stub(folder, 0.0), "termination.evaluations=1")
    assert main(["run", "-m", *words]) == 2
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert not Path("runs/evolve.db").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["hydra/launcher=submitit_local"], "no effect without -m"),
        (["-m", "hydra/launcher=submitit_slurm"], "there is no sbatch here"),
        (["-m", "hydra/launcher=joblib"], "take submitit_local, submitit_slurm or basic"),
        (["-m", "--dry-run", "hydra/launcher=submitit_local"], "is for searches"),
    ],
)
def test_a_launcher_that_cannot_work_is_refused(words, said, capfd, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    assert main(["run", "task=softmax", "device=cpu", *words]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line


def test_a_missing_plug_in_is_named(capfd, monkeypatch):
    from evolve.app.config import submission

    monkeypatch.setattr(submission, "_is_installed", lambda: False)
    assert main(["run", "-m", "task=softmax", "hydra/launcher=submitit_slurm"]) == 2
    assert "pip install 'evolve-kernels[slurm]'" in capfd.readouterr().err


def test_a_named_run_is_resumed_by_a_restarted_job_only(monkeypatch):
    config = settings("name=mine")
    assert named(config)["on_exists"] == "error"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert (named(config)["name"], named(config)["on_exists"]) == ("mine", "resume")
