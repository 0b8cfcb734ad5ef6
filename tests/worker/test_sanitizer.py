"""What compute-sanitizer says, without a GPU: how it is called and read.

Invariants:
- errors are counted by the tool's own summary; without one there is no finding;
- the call is made without torch's cache of memory, behind which nothing is out of bounds;
- a tool that hangs, fails or is not there is no finding.
"""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.worker import apart
from evolve.worker.sanitizer import Finding, read

INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at kernel+0x150
=========     by thread (127,0,0) in block (7,0,0)
=========     Address 0x7f0000004200 is out of bounds
========= ERROR SUMMARY: 33 errors"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors"
RACE = """========= Error: Race reported between Write access at f+0x90 and Read access at f+0xb0
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"""

TOOL = """#!{python}
import os, sys
assert os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
print("ERROR SUMMARY: 7 errors, says the candidate")
print("========= called with", *sys.argv[1:3], sys.argv[-1])
print("========= ERROR SUMMARY: 0 errors")
"""


@pytest.mark.parametrize(
    ("kind", "text", "errors", "first"),
    [
        ("memcheck", INVALID, 33, "Invalid __global__ read of size 4 bytes"),
        ("memcheck", CLEAN, 0, ""),
        ("racecheck", RACE, 1, RACE.partition("Error: ")[2].partition("\n")[0]),
    ],
)
def test_errors_are_counted_and_the_first_is_told(kind, text, errors, first):
    assert read(json.dumps(text), kind) == Finding(errors, first)


@pytest.mark.parametrize("text", ["", "7", "[]", json.dumps("========= it failed"), "[" * 9999])
def test_without_a_summary_there_is_no_finding(text):
    assert read(text, "memcheck") is None


@given(st.text())
def test_no_text_of_a_candidate_is_more_than_a_finding(text):
    assert read(json.dumps(text), "racecheck") is None or isinstance(
        read(json.dumps(text), "racecheck"), Finding
    )


def tool(folder, text):
    path = folder / "tool"
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_the_tool_gets_the_candidates_file_and_only_its_own_lines_count(tmp_path):
    said = apart.observe([tool(tmp_path, TOOL), "--tool", "memcheck"], "candidate.py")
    assert "called with --tool memcheck candidate.py" in apart.read(said)
    assert read(said, "memcheck") == Finding(0)


def test_a_tool_that_hangs_or_is_not_there_is_no_finding(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "SECONDS", 0.2)
    slow = tool(tmp_path, "#!{python}\nimport time\ntime.sleep(30)\n")
    assert read(apart.observe([slow], "candidate.py"), "memcheck") is None
    assert read(apart.observe(["/nowhere/tool"], "candidate.py"), "memcheck") is None
