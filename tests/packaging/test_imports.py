"""Cheap to import (promise 8), and imports that point downwards only.

Invariants:
1. `import evolve` takes under 0.2 s and brings in none of the heavy libraries; nor do `--help`,
   `list` and `tasks`. Only `run` and `resume` import Hydra. The library's names are there when they
   are asked for; no search from Python imports torch into the caller's process.
2. The import-linter contracts of `pyproject.toml` hold.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKER = "evolve/worker"
HEAVY = ("torch", "triton", "litellm", "hydra", "omegaconf", "sqlalchemy", "networkx", "numpy")


def python(code: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def loaded_by(*words: str) -> set[str]:
    """Heavy modules that are there after `evolve WORDS`."""
    code = (
        "import sys; from evolve.cli.main import main; main(sys.argv[1:]); "
        f"print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    )
    return set(python(code, *words).rpartition("loaded:")[2].split())


def test_importing_the_package_is_cheap():
    code = (
        "import time; start = time.perf_counter(); import evolve; "
        "print(time.perf_counter() - start)"
    )
    assert min(float(python(code)) for _ in range(3)) < 0.2


def test_importing_the_package_brings_in_nothing_heavy():
    code = f"import sys, evolve; print(*[name for name in {HEAVY} if name in sys.modules])"
    assert python(code).split() == []


@pytest.mark.slow
def test_every_name_of_the_library_is_there_and_none_imports_torch():
    code = (
        "import sys, evolve; print(*[getattr(evolve, name) for name in evolve.__all__ "
        "if name not in dir(evolve)]); "
        "from evolve import *; optimize, evaluate, Result, UsageError; "
        "print('torch' in sys.modules)"
    )
    assert python(code).split() == ["False"]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["tasks"], ["best", "--help"]])
def test_a_verb_that_needs_nothing_heavy_imports_nothing_heavy(words: list[str]):
    code = "import sys; from evolve.cli.main import main\ntry: main(sys.argv[1:])\n"
    code += "except SystemExit: pass\n"
    code += f"print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    assert python(code, *words).rpartition("loaded:")[2].split() == []


@pytest.mark.sample(1)
@pytest.mark.parametrize("verb", ["list", "show", "report", "lineage", "db"])
def test_a_verb_with_flags_imports_neither_hydra_nor_torch(verb: str, tmp_path: Path):
    words = {"db": ["db", "size"], "lineage": ["lineage", "-o", "x.dot"]}.get(verb, [verb])
    assert not {"hydra", "omegaconf", "torch"} & loaded_by(*words, "--store", str(tmp_path / "x"))


@pytest.mark.slow
def test_the_parts_of_a_run_are_built_without_torch():
    code = (
        "import sys; from evolve.app.components import *; from evolve.app.config.compose import *; "
        "c = compose(['task=x']); build_archive(c); build_operators(c); "
        "print('torch' in sys.modules)"
    )
    assert python(code).strip() == "False"


def test_imports_point_downwards_only():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("module", "added", "contract"),
    [
        (f"{WORKER}/runner/probes.py", "from evolve.worker.session import prepared_task", "trust:"),
        (f"{WORKER}/runner/probes.py", "from evolve.worker.correctness import compare", "trust:"),
        (
            f"{WORKER}/session/admission.py",
            "from evolve.worker.judge import judge",
            "rooms of the worker:",
        ),
        (
            "operators/prompting/replies.py",
            "from operators.llm import edit",
            "rooms of the operators:",
        ),
        ("evolve/app/session.py", "import argparse", "the application has no terminal:"),
        ("evolve/app/session.py", "from evolve.cli import signals", "imports point downwards"),
    ],
)
def test_a_contract_notices_an_import_that_it_forbids(
    module: str, added: str, contract: str, tmp_path: Path
):
    for package in ("evolve", "operators", "archives"):
        shutil.copytree(ROOT / package, tmp_path / package)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / module).open("a") as file:
        file.write(f"\n{added}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=tmp_path, capture_output=True, text=True,
                          check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)})  # fmt: skip
    assert done.returncode == 1
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    assert any(line.startswith(contract) for line in broken), done.stdout


def test_the_application_prints_nothing(tmp_path: Path):
    target = tmp_path / "evolve/app/session.py"
    target.parent.mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    target.write_text((ROOT / "evolve/app/session.py").read_text() + "\n\nprint(1)\n")
    ruff = Path(sys.executable).with_name("ruff")
    done = subprocess.run([ruff, "check", "--no-cache", "--output-format=concise", target],
                          cwd=tmp_path, capture_output=True, text=True, check=False)  # fmt: skip
    assert "T201" in done.stdout


def test_no_room_has_more_than_twenty_modules():
    tops = ("evolve", "operators", "archives")
    rooms = [path for top in tops for path in (ROOT / top).rglob("*") if path.is_dir()]
    counts = {str(room): len(list(room.glob("*.py"))) for room in rooms}
    assert max(counts.values()) <= 21, counts  # and `__init__`
