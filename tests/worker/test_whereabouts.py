"""Whose code a process executes.

Invariants: what the kernel says of a stopped process is taken, and nothing that it says itself; a
candidate whose own code is seen at work now and then is left alone.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from evolve.worker.whereabouts import code_of, library_label

TORCH = "/somewhere/torch/lib/libtorch_cpu.so"
OWN = "/work/6f95a7/gate.so"
NEITHER = ["/usr/lib/libpython3.11.so.1.0", "/torch/lib/libc10.so", "[vdso]",
           "/torch/lib/libgomp.so.1", "/usr/lib/x86_64-linux-gnu/libc.so.6"]  # fmt: skip


def stopped(text: str, seconds: float) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", text])
    time.sleep(seconds)
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    return process


def test_of_a_process_that_computes_the_file_of_its_code_is_found():
    process = stopped("while True: pass", 0.3)
    try:
        (path,) = code_of(process.pid)
        assert "python" in path
    finally:
        process.kill()
        process.wait()


def test_who_waits_executes_nothing_and_of_nobody_nothing_is_known():
    process = stopped("import time; time.sleep(60)", 0.3)
    try:
        assert code_of(process.pid) == []
    finally:
        process.kill()
        process.wait()
    assert code_of(process.pid) == []


def test_a_library_that_computes_without_the_candidate_is_named():
    label = library_label("main", [TORCH] * 9 + NEITHER, 2e-4)
    assert label is not None
    assert label.name == "foreign_library"
    assert "libtorch_cpu.so was computing in 9 looks, own code in 0" in label.evidence


@pytest.mark.parametrize(
    "path",
    ["/v/numpy.libs/libscipy_openblas64_-ff651d7f.so", "/v/numpy/_core/_umath.so",
     "/opt/intel/libmkl_rt.so.2", "/usr/lib/libblas.so.3"],
)  # fmt: skip
def test_other_libraries_that_compute_are_known(path):
    assert library_label("main", [path] * 9, 2e-4) is not None


@pytest.mark.parametrize(
    ("seen", "seconds_per_call"),
    [
        ([TORCH] * 9 + [OWN], 2e-4),
        ([TORCH] * 9 + [""], 2e-4),
        ([TORCH] * 9 + ["/work/6f95a7/libcustom.so"], 2e-4),
        ([TORCH] * 3, 2e-4),
        ([TORCH] * 9, 5e-5),
        (NEITHER * 9, 2e-4),
        ([], 2e-4),
    ],
    ids=["own code", "code of no file", "any name", "few looks", "short calls", "nobody's", "none"],
)
def test_without_clear_evidence_nothing_is_said(seen, seconds_per_call):
    assert library_label("main", seen, seconds_per_call) is None
