"""Whose code a process executes.

Invariants: what the kernel says of a stopped process is taken, and nothing that it says itself; a
candidate whose own code is seen at work now and then is left alone.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from evolve.worker.build.elf import places_of
from evolve.worker.devices.stack_sampling import (
    _TORCH,
    OWN,
    at_work,
    is_undecided,
    library_label,
    owner,
)

TORCH = "libtorch_cpu.so"
PRODUCTS = """
import numpy
a = numpy.ones((400, 400))
print("ready", flush=True)
while True:
    a @ a
"""
WAITING = "import time; print('ready', flush=True); time.sleep(60)"
GATE = """
#include <unistd.h>
int main() { volatile long n = 0; write(1, "ready\\n", 6); for (;;) ++n; }
"""


def stack_samples(command: Sequence[str], count: int) -> list[str]:
    """Who is at work in a process, each time that it is stopped."""
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(count):
            time.sleep(0.01)
            os.kill(process.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED)
            found.append(at_work(process.pid))
            os.kill(process.pid, signal.SIGCONT)
        process.kill()
    return found


def test_of_a_process_that_has_a_library_compute_the_library_is_named():
    assert any("openblas" in name for name in stack_samples([sys.executable, "-c", PRODUCTS], 20))


def test_code_that_is_nobody_elses_is_its_own(tmp_path: Path):
    source, program = tmp_path / "gate.cpp", tmp_path / "gate"
    source.write_text(GATE)
    subprocess.run(["g++", str(source), "-o", str(program)], check=True)
    assert OWN in stack_samples([str(program)], 5)


def test_who_waits_does_no_work_and_of_nobody_nothing_is_known():
    assert set(stack_samples([sys.executable, "-c", WAITING], 3)) == {""}
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert at_work(ended.pid) == ""


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("/v/torch/lib/libtorch_cpu.so", "libtorch_cpu.so"),
        ("/v/numpy.libs/libscipy_openblas64_-ff651d7f.so", "libscipy_openblas64_-ff651d7f.so"),
        ("/v/numpy/_core/_umath.so", "_umath.so"),
        ("/opt/intel/libmkl_rt.so.2", "libmkl_rt.so.2"),
        ("/usr/lib/libblas.so.3", "libblas.so.3"),
        ("/v/torch/lib/libtorch_python.so", ""),
        ("/v/torch/lib/libc10.so", ""),
        ("/v/torch/lib/libgomp.so.1", ""),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", ""),
        ("/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", ""),
        ("/usr/lib/libpython3.11.so.1.0", ""),
        ("/usr/bin/python3.11", ""),
        ("[vdso]", ""),
        ("/build/6f95a7/gate.so", OWN),
        ("/build/6f95a7/libcustom.so", OWN),
        ("", OWN),
    ],
)
def test_whose_code_a_file_holds(path, whose):
    assert owner(path, 0) == whose


def test_vector_functions_of_torch_are_nobodys_wherever_in_them_a_process_stands():
    places = places_of(_TORCH, b"Sleef_")
    assert len(places) > 100  # this build of torch has them
    whose = {owner(str(_TORCH), at) for first, end in places for at in (first, end - 1)}
    assert whose == {""}
    assert {owner(str(_TORCH), at) for at in (places[0][0] - 1, 0, 1 << 40)} == {TORCH}
    assert owner("/elsewhere/lib/libtorch_cpu.so", places[0][0]) == TORCH


SLEEF = """
#include <unistd.h>
#include <immintrin.h>
extern "C" __m256 Sleef_expf8_u10(__m256);
int main() {
  __m256 x = _mm256_set1_ps(0.5f);
  write(1, "ready\\n", 6);
  for (;;) x = Sleef_expf8_u10(_mm256_min_ps(x, _mm256_set1_ps(1)));
}
"""


@pytest.mark.slow
def test_a_program_that_calls_them_of_the_library_is_not_seen_in_the_library(tmp_path: Path):
    source, program = tmp_path / "exp.cpp", tmp_path / "exp"
    source.write_text(SLEEF)
    link = [f"-L{_TORCH.parent}", f"-Wl,-rpath,{_TORCH.parent}", "-ltorch_cpu", "-lc10"]
    command = ["g++", "-O2", "-mavx2", str(source), "-o", str(program), *link]
    subprocess.run(command, check=True)
    assert set(stack_samples([str(program)], 20)) <= {"", OWN}


def test_a_library_that_computes_without_the_candidate_is_named():
    label = library_label("main", [TORCH] * 9 + [""] * 40, 2e-4)
    assert label is not None
    assert label.name == "library_at_work"
    assert "9 samples of timed runs show libtorch_cpu.so at work, 0 own code" in label.evidence


@pytest.mark.parametrize(
    ("seen", "seconds_per_call"),
    [
        ([TORCH] * 9 + [OWN], 2e-4),
        ([TORCH] * 9 + [OWN] * 9, 2e-4),
        ([TORCH] * 5, 2e-4),
        ([TORCH] * 9, 5e-5),
        ([""] * 40, 2e-4),
        ([], 2e-4),
    ],
    ids=["own code", "much own code", "few stack_samples", "short calls", "nobody's", "none"],
)
def test_without_clear_evidence_nothing_is_said(seen, seconds_per_call):
    assert library_label("main", seen, seconds_per_call) is None


@pytest.mark.parametrize(
    ("seen", "seconds_per_call", "more"),
    [
        ([TORCH] + [""] * 11, 2e-4, True),
        ([TORCH] * 8 + [OWN], 2e-4, True),
        ([TORCH] + [OWN] * 4, 2e-4, False),
        ([TORCH] * 9, 2e-4, False),
        ([TORCH] * 18 + [OWN] * 2, 2e-4, False),
        ([TORCH], 5e-5, False),
        ([""] * 12, 2e-4, True),
        ([""] * 12, 5e-5, False),
    ],
    ids=[
        "a library only",
        "hardly own code",
        "own code",
        "a library",
        "nearly",
        "short",
        "nobody",
        "nobody in short ones",
    ],
)
def test_more_glances_are_wanted_where_nobody_was_seen_or_only_a_library_and_not_often(
    seen, seconds_per_call, more
):
    assert is_undecided(seen, seconds_per_call) is more
