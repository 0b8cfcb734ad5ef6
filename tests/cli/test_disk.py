"""Disks that are full, or cannot be written, seen by the command as users start it.

Invariants:
1. A disk that cannot be written is said before anything else is done.
2. One that fills up under a run ends it with one line, and a resume goes on once there is room.

The disks are mounted in a namespace of the test's own, so that nobody has to be root.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.at_terminal import search
from tests.cli.conftest import ROOT

EVOLVE = f"{sys.executable} -m evolve.cli.main"
PAGE = 4096


@pytest.fixture
def shell(tmp_path: Path):
    """Run a script where `disk` is a file system of some pages, with `files` on it."""

    def run(script: str, *, pages: int) -> subprocess.CompletedProcess[str]:
        mount = f"mount -t tmpfs -o size={pages * PAGE} tmpfs disk && cp files/* disk"
        return subprocess.run(
            ["unshare", "--map-root-user", "--mount", "sh", "-c", f"{mount} && {script}"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    (tmp_path / "disk").mkdir()
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").touch()
    if shutil.which("unshare") is None or run("true", pages=8).returncode:
        pytest.skip("this host lets nobody mount a disk in a namespace of its own")
    return run


def pages(file: Path) -> int:
    return -(-file.stat().st_size // PAGE)


def test_a_read_only_disk_is_named(shell):
    done = shell(
        f"mount -o remount,ro disk && {EVOLVE} run task=softmax store.path=disk/new.db", pages=8
    )
    assert done.returncode == 2
    assert done.stderr.startswith("evolve: store.path=disk/new.db: it cannot be written there")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow  # a disk that is read-only is named in the test above
def test_a_run_on_a_read_only_disk_is_not_resumed(shell, recording: Path, tmp_path: Path):
    shutil.copy(recording, tmp_path / "files" / "evolve.db")
    resume = f"{EVOLVE} resume demo store.path=disk/evolve.db"
    done = shell(f"mount -o remount,ro disk && {resume}", pages=pages(recording) + 8)
    assert done.returncode == 2
    assert "disk/evolve.db" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_disk_that_fills_up_under_a_run_loses_nothing(shell, recording: Path, tmp_path: Path):
    task = synthetic_task()
    (tmp_path / "synthetic.py").write_text(task.source)
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "seed.py").write_text(task.seeds[0])
    shutil.copy(recording, tmp_path / "files" / "evolve.db")
    (tmp_path / "files" / "ballast").write_bytes(bytes(1000 * PAGE))
    run = f"{EVOLVE} run task=./synthetic.py name=again device=replay device.run=demo"
    done = shell(
        f"{run} store.path=disk/evolve.db; status=$?; cp disk/evolve.db* .; exit $status",
        pages=pages(recording) + 1000 + 60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("evolve: disk/evolve.db: the disk is full; free some space and")
    assert done.stderr.count("\n") == 1
    with Store.open(tmp_path / "evolve.db") as store:
        stored = store.run("again")
        before = [step for step in store.steps(stored.id) if step.status]
        assert before
        assert asyncio.run(search(store, stored, stored.config, SyntheticEvaluator())) == 0
        after = list(store.steps(stored.id))
    assert [step for step in after if step in before] == before
