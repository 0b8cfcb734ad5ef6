"""Verbs that need a judge, with a real worker on this machine.

Invariants:
1. `eval` says what is right or wrong with a file: status 0 correct, 1 not correct, 2 not judgeable.
2. A task file that cannot be judged is one clear line with status 2, and no database appears.
3. A folder that `--repro` wrote gives the same verdict again.
4. `run` ends with a kernel, its interval, and a report; `--dry-run` touches no database.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve.app.config.schema import Accumulation, Precision, Size, Tier
from evolve.core.task import ACCUMULATIONS, PRECISIONS, SIZES
from evolve.store import Store
from evolve.store.champion import champion
from evolve.tasks.shipped import library_folder
from evolve.worker.sandbox.policy import TIERS
from tests.cli.conftest import ROOT

SEED = library_folder() / "softmax" / "seeds" / "online.py"
UNTIMED = ("--task", "softmax", "--size", "tiny", "--fidelity", "check")
TINY = (*UNTIMED[:-1], "screen")

ZEROS = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
"""

TASK = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.ones(3)]


def get_init_inputs():
    return []
"""

BAD_TASKS = {
    "does not import": ("import nowhere\n" + TASK.format(result="x"), ["nowhere"]),
    "lacks a function": (TASK.format(result="x").partition("def get_init")[0], ["get_init_inputs"]),
    "gives no tensor": (TASK.format(result="'no'"), ["str", "tensor"]),
}
SLOW = ("does not import", "lacks a function")


def test_the_settings_offer_what_tasks_and_sandbox_know():
    assert {size.value for size in Size} == {"auto", *SIZES}
    assert {precision.value for precision in Precision} == {*PRECISIONS}
    assert {accumulation.value for accumulation in Accumulation} == {*ACCUMULATIONS}
    assert {tier.value for tier in Tier} == {*TIERS}


def test_a_correct_kernel_is_judged(evolve):
    done = evolve("eval", str(SEED), *UNTIMED, "--json")
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "correct"
    assert verdict["custom"] is True
    assert verdict["ratios"] == {}
    assert verdict["audit"] == []


@pytest.mark.slow  # intervals are in test_interleaved_blocks
def test_the_times_of_a_correct_kernel_have_intervals(evolve):
    done = evolve("eval", str(SEED), *TINY, "--json")
    assert done.returncode == 0, done.stderr
    value, low, high = json.loads(done.stdout)["ratios"]["eager"]
    assert low <= value <= high


@pytest.mark.slow
def test_a_wrong_kernel_is_told_what_is_wrong(evolve, tmp_path: Path):
    (tmp_path / "zeros.py").write_text(ZEROS)
    done = evolve("eval", "zeros.py", *TINY)
    assert done.returncode == 1, done.stderr
    assert "wrong value" in done.stdout
    assert "all zeros" in done.stdout
    checks = [line.split(maxsplit=1)[1] for line in done.stdout.splitlines()[4:7]]
    assert checks == ["not run", "not run", "failed"]  # the smallest comes first


@pytest.mark.slow
def test_a_syntax_error_is_shown_with_its_line_whatever_else_is_missing(evolve, tmp_path: Path):
    (tmp_path / "torn.py").write_text("import torch\n\n\ndef forward(x:\n    return x\n")
    done = evolve("eval", "torn.py", *TINY)
    assert done.returncode == 1, done.stderr
    assert "compile error" in done.stdout
    assert "candidate.py line 4: SyntaxError" in done.stdout
    assert "> " in done.stdout.partition("SyntaxError")[2]


@pytest.mark.slow
def test_a_class_of_another_name_is_named_with_the_remedy(evolve, tmp_path: Path):
    (tmp_path / "mine.py").write_text(ZEROS.replace("ModelNew", "Model"))
    done = evolve("eval", "mine.py", *TINY)
    assert done.returncode == 1, done.stderr
    assert "defines no class ModelNew; rename its class Model to ModelNew" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "named"),
    [
        pytest.param(*bad, id=name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name, bad in BAD_TASKS.items()
    ],
)
def test_a_task_that_cannot_be_judged_is_one_clear_line(
    evolve, tmp_path: Path, source: str, named: list[str]
):
    (tmp_path / "bad.py").write_text(source)
    (tmp_path / "zeros.py").write_text(ZEROS)
    done = evolve("run", "task=./bad.py", "initial=[zeros.py]")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    for name in named:
        assert name in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_folder_that_repro_wrote_is_judged_again(evolve, recorded: Path, tmp_path: Path):
    done = evolve("eval", "demo:0", "--repro", "case")
    assert done.returncode == 0, done.stderr
    request = json.loads((tmp_path / "case" / "request.json").read_text())
    request["fidelity"] = "screen"
    request["task"] = {**request["task"], "source": TASK.format(result="x * 0")}
    (tmp_path / "case" / "request.json").write_text(json.dumps(request))
    (tmp_path / "case" / "candidate.py").write_text(ZEROS)
    done = evolve("eval", "case", "--json")
    assert json.loads(done.stdout)["status"] == "correct", done.stderr


@pytest.mark.slow
def test_doctor_asks_the_worker_for_each_mechanism_of_the_sandbox(evolve):
    done = evolve("doctor", "--json")
    assert done.returncode == 0, done.stdout
    findings = {finding["what"].strip(): finding for finding in json.loads(done.stdout)}
    assert findings["sandbox"]["detail"].startswith("tier ")
    assert {"landlock", "seccomp", "pid namespace", "limits"} <= {*findings}


@pytest.mark.slow
def test_doctor_says_which_keys_of_models_are_seen_and_never_what_they_are(evolve, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", "planted-7f3a9b-key")
    done = evolve("doctor", "--device", "cpu")
    [line] = [line for line in done.stdout.splitlines() if "model keys" in line]
    assert "GROQ_API_KEY" in line
    assert "planted-7f3a9b-key" not in done.stdout + done.stderr


def test_an_unknown_sandbox_tier_is_refused_by_name(evolve):
    done = evolve("eval", str(SEED), *TINY, "--sandbox-require", "vm")
    assert done.returncode == 2
    assert "namespaces" in done.stderr


@pytest.mark.slow
def test_a_dry_run_says_what_the_budget_buys_and_touches_no_database(evolve, tmp_path: Path):
    done = evolve(
        *("run", "task=softmax", "task_config.size=tiny", "search=quick", "--dry-run"),
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    for word in ("sound", "reference", "noise", "evaluations=60", "wall_time=80s", "comes first"):
        assert word in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_run_ends_with_a_kernel_and_its_report(evolve, tmp_path: Path):
    done = evolve(
        *("run", "task=softmax", "task_config.size=tiny", "search=quick"),
        "termination.evaluations=3",
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert "best kernel" in done.stdout
    assert (tmp_path / "runs" / "softmax-1.html").is_file()
    assert evolve("best", "-o", "kernel.py").returncode == 0
    assert evolve("eval", "kernel.py", *TINY).returncode == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_the_readme_starts_with_ends_with_a_gain(evolve, tmp_path: Path):
    done = evolve("run", "task=rmsnorm", "search=quick", timeout=850)
    assert done.returncode == 0, done.stderr
    with Store.open(tmp_path / "runs" / "evolve.db", read_only=True) as store:
        winner = champion(store, store.run("rmsnorm-1"))
    assert winner is not None
    assert winner.verified
    assert winner.ratio.low > 1


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_stop_under_a_real_evaluation_drains_within_25_seconds(tmp_path: Path):
    database = tmp_path / "runs" / "evolve.db"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "evolve.cli.main", "run", "task=rmsnorm", "search=quick"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for_an_evaluation(database)
            process.send_signal(signal.SIGTERM)
            start = time.monotonic()
            assert process.wait(timeout=100) == 75, (tmp_path / "log").read_text()
            assert time.monotonic() - start < 25
        finally:
            process.kill()
    with Store.open(database, read_only=True) as store:
        run = store.run()
        assert (run.state, run.reason) == ("interrupted", "stopped by SIGTERM")
        assert [ticket.attempts for ticket in store.open_tickets(run.id)] in ([], [0], [0, 0])


def wait_for_an_evaluation(database: Path) -> None:
    deadline = time.monotonic() + 250
    while time.monotonic() < deadline:
        if database.exists():
            with Store.open(database, read_only=True) as store:
                if any(ticket.attempts for ticket in store.open_tickets(store.run().id)):
                    return
        time.sleep(0.5)
    raise AssertionError("no evaluation was ever started")


@pytest.mark.slow
def test_a_task_that_accepts_no_work_is_said_to_be_weak(evolve, tmp_path: Path):
    (tmp_path / "bad.py").write_text(TASK.format(result="x * 0"))
    (tmp_path / "zeros.py").write_text(ZEROS)
    done = evolve("run", "task=./bad.py", "initial=[zeros.py]", "termination.evaluations=1")
    assert done.returncode == 0, done.stderr
    assert "bad is WEAK" in done.stdout
    config = json.loads(evolve("show", "--json").stdout)["config"]
    assert config["audit"]
