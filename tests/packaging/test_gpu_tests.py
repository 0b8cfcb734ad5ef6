"""Tests that need a GPU, as far as a host without one can see them.

Invariant: where torch, triton, numpy and pytest are all that is installed, the README's command
for a GPU host finds tests in each file of `tests/gpu` and in each file that it names, so that a
change elsewhere that breaks the import of one is noticed here.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path

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


def test_the_command_of_the_readme_finds_each_file_of_tests_with_four_packages(tmp_path: Path):
    (line,) = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(COMMAND)
    ]
    paths = shlex.split(line.partition("#")[0].removeprefix(COMMAND))
    files = [f"tests/gpu/{file.name}" for file in (ROOT / "tests/gpu").glob("test_*.py")]
    assert files
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-q", "-m", "gpu", *paths],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {file for file in (*files, *paths) if file not in done.stdout} == set()
