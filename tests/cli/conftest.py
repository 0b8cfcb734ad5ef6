"""The command as users start it, and a database with a recorded run."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from evolve.cli.main import main
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests import forked
from tests.cli.recording import record

ROOT = Path(__file__).parents[2]
Evolve = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def evolve(tmp_path: Path) -> Evolve:
    """Run `evolve WORDS` in an empty folder, in a process of its own."""
    return evolve_in(tmp_path)


def evolve_in(folder: Path) -> Evolve:
    def run(
        *words: str, timeout: float = 90, packages: tuple[Path, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *packages)))}
        if not packages:
            return forked.run("evolve", *words, cwd=folder, env=env, timeout=timeout)
        return subprocess.run(  # what has been imported did not see these
            [sys.executable, "-m", "evolve", *words],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return run


@pytest.fixture
def evolve_here(tmp_path: Path, monkeypatch, capsys) -> Evolve:
    """`evolve WORDS` in an empty folder, in this process, which is quicker."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, said.out, said.err)

    return run


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with the finished run `demo` of the synthetic task."""
    path = tmp_path_factory.mktemp("recording") / "evolve.db"
    with Store.open(path, create=True) as store:
        record(store, synthetic_task(), SyntheticEvaluator())
    return path


@pytest.fixture
def recorded(recording: Path, tmp_path: Path) -> Path:
    """A copy of `recording` at `runs/evolve.db` in the folder where `evolve` runs."""
    path = tmp_path / "runs" / "evolve.db"
    path.parent.mkdir()
    shutil.copy(recording, path)
    return path


@pytest.fixture
def task_folder(tmp_path: Path, monkeypatch) -> Path:
    """A task of the user's own, in the folder where the command runs."""
    monkeypatch.chdir(tmp_path)
    task = synthetic_task()
    Path("synthetic.py").write_text(task.source)
    Path("seeds").mkdir()
    Path("seeds/seed.py").write_text(task.seeds[0])
    return tmp_path


@pytest.fixture
def bench_checkout(tmp_path: Path, monkeypatch) -> None:
    """A checkout of three problems, and a program to start from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERNELBENCH_PATH", "unset")  # and so put back afterwards
    for number, place in enumerate(("level1/1_Softmax", "level1/2_Matmul", "level2/1_Both")):
        file = Path("checkout", f"{place}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{synthetic_task().source}\n# {number}\n")
    Path("mine.py").write_text(SEED_SOURCE)
