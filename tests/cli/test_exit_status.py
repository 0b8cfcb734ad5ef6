"""What schedulers are told.

Invariants:
1. A judge that fails in the middle of a run: 75, the message, and a run that a resume ends.
2. A report that cannot be written changes no status; that of a very long run is left for later.
3. A disk that is full, or a database that cannot be used: 2, one line, no traceback.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evolve.cli.console.live import MAX_RECOUNTED
from evolve.core.errors import EvaluatorUnavailable
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.benchmarks.bench_store import grow
from tests.cli.at_terminal import search
from tests.cli.conftest import ROOT
from tests.cli.recording import settings


class Failing(SyntheticEvaluator):
    """A judge whose device falls off the bus."""

    async def evaluate(self, request):
        if self.calls == 3:
            raise EvaluatorUnavailable("the device is gone")
        return await super().evaluate(request)


def test_a_judge_that_fails_leaves_a_run_to_resume(tmp_path: Path, capsys):
    config = settings("termination.evaluations=6")
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        assert asyncio.run(search(store, run, config, Failing())) == 75
        shown = capsys.readouterr()
        assert shown.err == "evolve: the device is gone\n"
        assert "evolve resume demo" in shown.out
        assert asyncio.run(search(store, run, config, SyntheticEvaluator())) == 0
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # as before: this is no command


def test_a_report_that_cannot_be_written_is_a_line_of_the_summary(tmp_path: Path, capsys):
    config = settings("termination.evaluations=2")
    (tmp_path / "demo.html").mkdir()
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        assert asyncio.run(search(store, run, config, SyntheticEvaluator())) == 0
        shown = capsys.readouterr().out
        assert "  report    none: output" in shown
        assert "demo.html' is a folder" in shown
        more = config | {"termination": settings("termination.evaluations=9")["termination"]}
        assert asyncio.run(search(store, run, more, Failing(noise=0.001))) == 75


@pytest.mark.slow
def test_the_end_of_a_very_long_run_does_not_wait_for_its_report(tmp_path: Path, capsys):
    path = tmp_path / "evolve.db"
    grow(path, MAX_RECOUNTED + 1)
    config = settings("termination.evaluations=1", "archive=topk", "archive.capacity=10000")
    with Store.open(path) as store:
        run = store.run()
        search_of_nothing = search(store, run, config, SyntheticEvaluator())
        start = time.process_time()
        assert asyncio.run(search_of_nothing) == 0
        assert time.process_time() - start < 10
    shown = capsys.readouterr().out
    assert f"  report    evolve report {run.name} --store {path}" in shown
    assert not path.with_name(f"{run.name}.html").exists()


def test_a_damaged_database_is_one_line(evolve, recorded: Path):
    content = recorded.read_bytes()
    recorded.write_bytes(content[:4096] + b"\xff" * 8192 + content[12288:])
    done = evolve("show", "demo")
    assert done.returncode == 2
    assert "is damaged" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DROP TABLE evaluation", "is damaged (no such table: evaluation)"),
        ("UPDATE blob SET bytes = x'00'", "a stored text is damaged"),
    ],
)
def test_a_database_that_somebody_has_changed_is_one_line(evolve, recorded: Path, damage, said):
    with sqlite3.connect(recorded) as connection:
        connection.execute(damage)
    connection.close()
    done = evolve("show", "demo")
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    command = f"rmdir {gone}; {sys.executable} -m evolve.cli.main list"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=gone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "the current folder is gone" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_output_onto_a_full_disk_is_one_line(tmp_path: Path):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evolve.cli.main", "tasks"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "evolve: No space left on device; mend that and try again\n"
