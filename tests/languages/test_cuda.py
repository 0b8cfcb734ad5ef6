"""CUDA C++ without a GPU: what its programs need on a machine is named with the remedy.

Invariants: nvcc is looked for where the inline compilers do, `CUDA_HOME` before `PATH`, so that a
machine without it is told before a build; packages that build are named as for C++.
"""

from pathlib import Path

import pytest

from evolve.languages import cuda
from evolve.languages.base import Package
from evolve.languages.cpp import CPP
from evolve.languages.cuda import CUDA


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit that nothing points to, on a machine without another."""
    compiler = tmp_path / "toolkit" / "bin" / "nvcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(cuda, "DEFAULT_HOME", str(tmp_path / "absent"))
    return compiler.parents[1]


def test_a_machine_without_nvcc_is_told_so_with_the_remedy(toolkit: Path):
    assert CUDA.missing() == "there is no nvcc; install the CUDA toolkit, or set CUDA_HOME"


def test_nvcc_is_found_where_the_inline_compilers_find_it(toolkit: Path, monkeypatch):
    for name, value in (
        ("CUDA_HOME", toolkit),
        ("CUDA_PATH", toolkit),
        ("PATH", toolkit / "bin"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, str(value))
            assert CUDA.missing() == "", name
    monkeypatch.setattr(cuda, "DEFAULT_HOME", str(toolkit))
    assert CUDA.missing() == ""


def test_a_home_without_nvcc_is_not_made_good_by_the_path(toolkit: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(toolkit / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(toolkit.parent / "absent"))
    why = CUDA.missing()
    assert f"no nvcc in {toolkit.parent / 'absent' / 'bin'}" in why
    assert "set CUDA_HOME" in why


def test_what_builds_is_needed_as_for_cpp():
    assert CUDA.packages == CPP.packages
    assert all(isinstance(each, Package) and each.needed for each in CUDA.packages)
    assert {each.distribution for each in CUDA.packages} == {"apache-tvm-ffi", "ninja"}
