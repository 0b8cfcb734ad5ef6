"""Searches as jobs of a real Slurm of one node, with stub judges.

Invariants:
1. SIGUSR1 stops a search cleanly; its job is queued again, and goes on with the same run: no stored
   row is lost, and no finished evaluation is repeated.
2. `evolve run -m hydra/launcher=submitit_slurm` submits a job for each run of a sweep.
3. Workers of an array job judge for a search outside of Slurm.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evolve.core.records import RunRow
from evolve.store import Store
from tests.forked import start
from tests.serve.pulling import TOKEN, free_port, token_file
from tests.slurm.cluster import Cluster, running_cluster
from tests.slurm.stub import judged, stub

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples" / "slurm").glob("*.sbatch"))
SEARCH = (
    *("task=rmsnorm", "task_config.size=tiny", "device=cpu", "search=quick", "baseline=eager"),
    "store.reuse=false",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster() as started:
        path = f"{Path(sys.executable).parent}:{started.environment['PATH']}"
        started.environment |= {"PATH": path, "PYTHONPATH": str(ROOT)}
        yield started


def wait_until(condition: Callable[[], object], log: Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        logs = [
            path.read_text() for path in sorted(log.rglob("*.out")) + sorted(log.rglob("*.err"))
        ]
        assert time.monotonic() < deadline, "\n".join(logs)
        time.sleep(0.1)


def ended(cluster: Cluster, job: str) -> Callable[[], bool]:
    """Whether a job has; one that was queued again need not wait."""

    def look() -> bool:
        fields = cluster.job(job)
        if fields["JobState"] == "PENDING" and fields["Restarts"] != "0":
            cluster.run("scontrol", "update", f"JobId={job}", "StartTime=now")
        return fields["JobState"] in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")

    return look


def check_resumed(folder: Path, name: str | None = None) -> RunRow:
    """The run ended after one stop by SIGUSR1, and its judge was asked everything once."""
    with Store.open(folder / "runs" / "evolve.db", read_only=True) as store:
        run = store.run(name)
        log = [(entry.action, entry.detail) for entry in store.audit_log(20, run.name)]
        steps = [step for each in store.runs() for step in store.steps(each.id)]
    assert run.state == "finished"
    assert [action for action, _ in log] == ["started", "interrupted", "resumed", "finished"]
    assert log[1][1] == "stopped by SIGUSR1"
    assert len(judged(folder)) == sum(step.status is not None for step in steps)
    return run


@pytest.mark.slow
def test_a_search_in_a_script_is_queued_again_by_sigusr1_and_goes_on(
    cluster: Cluster, tmp_path: Path
):
    words = (*SEARCH, stub(tmp_path, 0.3), "termination.evaluations=10")
    script = str(ROOT / "examples/slurm/run.sbatch")
    job = cluster.run("sbatch", "--parsable", script, *words, cwd=tmp_path)
    wait_until(lambda: len(judged(tmp_path)) >= 3, tmp_path)
    cluster.run("scancel", "--signal=USR1", job)
    wait_until(ended(cluster, job), tmp_path)
    fields = cluster.job(job)
    assert (fields["JobState"], fields["Restarts"]) == ("COMPLETED", "1")
    assert check_resumed(tmp_path).name == f"job-{job}"


@pytest.mark.slow
def test_a_sweep_is_submitted_and_a_stopped_job_goes_on(cluster: Cluster, tmp_path: Path):
    words = (*SEARCH, stub(tmp_path, 0.3), "termination.evaluations=8", "seed=1,2")
    sweep = subprocess.Popen(
        ["evolve", "run", "-m", *words, "hydra/launcher=submitit_slurm"],
        cwd=tmp_path,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    jobs = tmp_path / "runs" / "jobs"
    try:
        wait_until(lambda: len(judged(tmp_path)) >= 4, jobs)
        array = cluster.run("squeue", "--noheader", "--format=%A %F %K").splitlines()[0].split()
        job = f"{array[1]}_0"
        cluster.run("scancel", "--signal=USR1", job)
        wait_until(lambda: ended(cluster, job)() and ended(cluster, f"{array[1]}_1")(), jobs)
        said, _ = sweep.communicate(timeout=60)
    finally:
        sweep.kill()
    assert sweep.returncode == 0, said
    run = check_resumed(tmp_path, f"rmsnorm-job-{job}")
    assert run.config["seed"] in (1, 2)


@pytest.mark.slow
def test_workers_of_an_array_judge_for_a_search_elsewhere(cluster: Cluster, tmp_path: Path):
    port, token = free_port(), token_file(tmp_path)
    pull = ("cluster=pull", f"cluster.listen=127.0.0.1:{port}", f"cluster.token_file={token}")
    search = start("evolve", "run", *SEARCH, *pull, "termination.evaluations=8", cwd=tmp_path)
    address = f"SERVER=http://127.0.0.1:{port},TOKEN_FILE={token},IDLE=1s"
    script = str(ROOT / "examples/slurm/pull_workers.sbatch")
    words = ("--parsable", "--array=0-1", f"--export=ALL,{address}", script)
    judge = ("device=cpu", stub(tmp_path, 0.2))
    job = cluster.run("sbatch", *words, *judge, cwd=tmp_path)
    try:
        assert search.wait(60) == 0, search.printed()
    finally:
        search.kill()
    wait_until(lambda: all(ended(cluster, f"{job}_{n}")() for n in (0, 1)), tmp_path)
    starts = (tmp_path / "judge" / "starts").read_text().split()
    assert len(starts) >= 2
    assert len(judged(tmp_path)) == len({*judged(tmp_path)}) >= 8
    assert TOKEN not in "".join(path.read_text() for path in tmp_path.glob("*.out"))


@pytest.mark.slow
def test_a_search_on_ray_in_a_job_is_queued_again_too(cluster: Cluster, tmp_path: Path):
    pytest.importorskip("ray")
    words = (*SEARCH, stub(tmp_path, 0.3), "termination.evaluations=10", "cluster.judges=1")
    script = str(ROOT / "examples/slurm/ray.sbatch")
    job = cluster.run("sbatch", "--parsable", "--nodes=1", script, *words, cwd=tmp_path)
    wait_until(lambda: len(judged(tmp_path)) >= 3, tmp_path, timeout_s=100)
    cluster.run("scancel", "--signal=USR1", job)
    wait_until(ended(cluster, job), tmp_path, timeout_s=100)
    assert cluster.job(job)["JobState"] == "COMPLETED"
    check_resumed(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_is_bash_that_stops_in_time(script: Path):
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text()
    assert "#SBATCH --signal=USR1@" in text
    assert "#SBATCH --requeue" in text
    assert os.access(script, os.X_OK)
