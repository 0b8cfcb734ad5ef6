"""`evolve serve` as users start it, with the judge of this machine's processor.

Invariants: a verdict over HTTP is the judge's own; a signal ends the server and all it started.
"""

import contextlib
import os
import signal
import subprocess
import sys

import httpx
import pytest

from evolve.tasks.shipped import library_folder
from tests.serve.serving import ROOT
from tests.worker.serving import alive, family_of

TOKEN = "correct-horse-battery-staple"


@contextlib.contextmanager
def evolve_serve(folder, *words: str):
    """The address of a server, and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "evolve.cli.main", "serve", "port=0", "device=cpu", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "EVOLVE_SERVE_TOKEN": TOKEN},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        line = next(line for line in lines if line.startswith("serving "))
        yield line.split()[1], process
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=90)


def seed() -> str:
    return sorted((library_folder() / "rmsnorm" / "seeds").glob("*.py"))[0].read_text()


def test_the_judge_checks_a_kernel_and_a_signal_ends_it_all(tmp_path):
    with evolve_serve(tmp_path) as (url, process):
        body = {"task": "rmsnorm", "size": "tiny", "fidelity": "check", "rewards": ["mtmc@1"]}
        body["source"] = seed().replace("ModelNew", "ModelOld")
        with ask(url) as http:
            answer = http.post("/v1/jobs?wait_s=60", json=body).json()
            about = http.get("/v1/service").json()
        assert answer["verdict"]["status"] == "invalid_interface"
        assert answer["task"]["weak"] == []
        assert about["device_class"].startswith("cpu")
        assert answer["evaluator_version"] == about["evaluator_version"]
        started = family_of(process.pid)
        assert started
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not alive(started)
    assert (tmp_path / "runs" / "serve.db").is_file()


@pytest.mark.slow
def test_a_kernel_is_judged_at_the_fidelity_of_training_through_every_door(tmp_path):
    with evolve_serve(tmp_path) as (url, _), ask(url) as http:
        body = {"task": "rmsnorm", "size": "tiny", "source": seed(), "rewards": ["kevin@1"]}
        answer = http.post("/v1/jobs?wait_s=60", json=body).json()
        assert answer["verdict"]["strict"] is True
        assert answer["rewards"]["kevin@1"] >= 0.3
        gym = {
            "task_id": "gym",
            "reference_code": (library_folder() / "rmsnorm" / "task.py").read_text(),
            "kernel_code": seed(),
        }
        http.post("/kernelgym/evaluate", json=gym).raise_for_status()
        http.get("/v1/jobs/gym?wait_s=60").raise_for_status()
        result = http.get("/kernelgym/results/gym").json()
        assert (result["status"], result["correctness"]) == ("completed", True)
        assert result["kernel_runtime"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_parent_is_timed_beside_its_child_and_left_out_where_it_does_not_run(tmp_path):
    body = {"task": "rmsnorm", "size": "cpu", "source": seed(), "rewards": ["kernel_smith@1"]}
    orphan = {**body, "parent_source": "class ModelNew: pass\n"}
    with evolve_serve(tmp_path) as (url, _), ask(url) as http:
        jobs = {"jobs": [{**body, "parent_source": seed()}, orphan]}
        ids = [job["id"] for job in http.post("/v1/batches", json=jobs).json()["jobs"]]
        answers = [_over(http, id_) for id_ in ids]
    beside_itself, without = (answer["rewards"]["kernel_smith@1"] for answer in answers)
    assert beside_itself == pytest.approx(1.0, abs=0.3)
    assert answers[1]["verdict"]["strict"] is True
    assert without is None
    assert "opponent_failed" in {name for name, _ in answers[1]["verdict"]["labels"]}


def _over(http: httpx.Client, job: str) -> dict:
    while True:
        answer = http.get(f"/v1/jobs/{job}?wait_s=60").json()
        if answer["state"] in ("done", "failed"):
            return answer
