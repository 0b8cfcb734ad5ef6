"""Tests that need a GPU, as far as a host without one can see them.

Invariants: the README's command for a GPU host finds its tests where torch, triton, numpy and
pytest are all that is installed; with everything installed, each file of `tests/gpu` can be
imported and has tests, so that a change elsewhere that breaks one is noticed here.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.worker.serving import ROOT

COMMAND = "python -m pytest -m gpu "
ABSENT = """
import sys

ABSENT = "hydra omegaconf sqlalchemy litellm networkx rich jinja2 yaml hypothesis pytest_timeout"


class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT.split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())
"""


def require_collected(paths: Sequence[str], files: Sequence[str], before: Path) -> None:
    """Collect the paths, with a folder in front of all others, and require tests of each file."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-q", "-m", "gpu", *paths],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{before}{os.pathsep}{ROOT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file for file in files if file not in done.stdout} == set()


@pytest.mark.slow  # the one below collects the same files
def test_the_command_of_the_readme_finds_its_tests_with_four_packages(tmp_path: Path):
    (line,) = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(COMMAND)
    ]
    paths = shlex.split(line.partition("#")[0].removeprefix(COMMAND))
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    require_collected(paths, paths, tmp_path)


def test_every_file_of_tests_for_a_gpu_is_collected_without_one(tmp_path: Path):
    files = [f"tests/gpu/{file.name}" for file in (ROOT / "tests/gpu").glob("test_*.py")]
    assert files
    require_collected(["tests/gpu"], files, tmp_path)
