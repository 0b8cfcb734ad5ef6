"""The README's command for tests on a GPU host needs torch, triton, numpy and pytest there."""

import os
import shlex
import subprocess
import sys
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


@pytest.mark.slow  # collects tests in a process of its own
def test_the_command_of_the_readme_finds_its_tests_with_four_packages(tmp_path: Path):
    (line,) = [
        line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(COMMAND)
    ]
    paths = shlex.split(line.partition("#")[0].removeprefix(COMMAND))
    (tmp_path / "sitecustomize.py").write_text(ABSENT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-m", "gpu", *paths],
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
    for path in paths:
        assert path in done.stdout
