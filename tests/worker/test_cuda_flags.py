"""Further headers and flags for CUDA C++.

Invariants:
- flags of optimisation and language are taken, any other is refused with what is allowed;
- a folder has to be there;
- what is in force is part of the judge's version and known to whoever asks.
"""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.worker.base.interpreter import environment
from evolve.worker.base.nvcc_flags import VARIABLE, add_flags, current
from tests.worker.serving import ROOT, Worker

FINE = ["-O3", "--use_fast_math", "-std=c++20", "-DNAME=2", "--maxrregcount=64", "-arch=sm_90a"]
BAD = ["-ccbin=/tmp/cc", "--compiler-options=-fplugin=x.so", "-Xcompiler", "-O3 -ccbin=x", "-o=x",
       "--run", "-I/etc", "-include", "@file", "-DX=$(id)", "--keep-dir=/", ""]  # fmt: skip


@pytest.fixture(autouse=True)
def no_flags(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(os, "environ", os.environ.copy())


def test_headers_and_allowed_flags_are_in_force(tmp_path):
    add_flags([str(tmp_path)], FINE)
    assert current() == " ".join([f"-I{tmp_path}", *FINE])


@pytest.mark.parametrize(
    ("flag", "architecture"), [("-arch=sm_90a", "9.0a"), ("-arch=sm_120f", "12.0f"), ("-O3", "")]
)
def test_a_flag_that_names_a_gpu_has_programs_built_for_it_alone(flag, architecture, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0 9.0+PTX")  # a container's
    add_flags([], ["-std=c++20", flag])
    found = environment({})
    names = ("TVM_FFI_CUDA_ARCH_LIST", "TORCH_CUDA_ARCH_LIST")
    assert {found.get(name, "") for name in names} == {architecture}


@pytest.mark.parametrize("flag", BAD)
def test_other_flags_are_refused_with_what_is_allowed(flag):
    with pytest.raises(UsageError, match=r"cuda\.flags: .* is not allowed.*-O3"):
        add_flags([], [flag])
    assert not current()


@given(st.from_regex(r"-.*[\s;$`\"'&|<>@].*", fullmatch=True))
def test_no_flag_with_a_meaning_to_a_shell_is_taken(flag):
    with pytest.raises(UsageError):
        add_flags([], [flag])


def test_a_folder_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match=r"cuda\.include: /nowhere is no folder"):
        add_flags(["/nowhere"], [])


@pytest.mark.slow
def test_flags_in_force_change_the_judges_version(tmp_path):
    worker = Worker(tmp_path / "a", "--device", "cpu", "--cuda-flag=-O3")
    plain = Worker(tmp_path / "b", "--device", "cpu")
    try:
        flagged, without = worker.ask("hello"), plain.ask("hello")
    finally:
        worker.close()
        plain.close()
    assert flagged["versions"]["nvcc_flags"] == "-O3"
    assert without["versions"]["nvcc_flags"] == ""
    assert flagged["evaluator_version"] != without["evaluator_version"]


@pytest.mark.slow
def test_a_worker_that_is_asked_for_another_flag_says_so(tmp_path):
    words = ["-m", "evolve.worker", "serve", "--device", "cpu", "--cuda-flag=-ccbin=x"]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2
    assert "cuda.flags: -ccbin=x is not allowed" in done.stdout
