"""The example of a search from Python runs to its end before a real judge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evolve

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.quiet
@pytest.mark.timeout(600)
def test_the_example_finds_a_kernel_that_takes_the_place_of_its_module(tmp_path):
    budget = {"evaluations": 1, "wall_time": None}  # however slow the machine is
    code = f"from search_a_module import main; main({budget})"
    places = os.pathsep.join([str(ROOT), str(ROOT / "examples" / "python_api")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "the kernel and the module agree" in done.stdout
    result = evolve.Result(tmp_path / "runs" / "evolve.db")
    assert (result.finished, result.speedup is None) == (True, False)
    assert [row.operator for row in result.history if row.fidelity == "verify"]
    assert result.source.startswith("# Kernel for task GatedNorm")
