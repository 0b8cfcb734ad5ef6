"""What compute-sanitizer says, without a GPU: how it is called and read.

Invariants:
- errors are counted by the tool's own summary; without one there is no finding;
- the call is the candidate's, on inputs whose memory ends where they end, and without torch's cache
  of memory, behind which nothing is out of bounds;
- a tool that hangs, fails or is not there, and a program that fails under it, is no finding.
"""

import ast
import importlib.util
import json
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from evolve.languages.cpp import CPP
from evolve.worker.build.cache import BuildCache
from evolve.worker.evidence.sanitizer import Finding, last_words, read
from evolve.worker.runner import tool_process
from tests.worker.sharing import shared

INVALID = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at kernel+0x150
=========     by thread (127,0,0) in block (7,0,0)
=========     Address 0x7f0000004200 is out of bounds
========= ERROR SUMMARY: 33 errors"""
FAILED = "Target application returned an error"
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
    assert read(json.dumps([text, 0, 0.5]), kind) == Finding(errors, first)
    found = Finding(errors, first) if errors else None  # who failed may not have launched anything
    assert read(json.dumps([text, 1, 0.5]), kind) == found
    failed = f"========= {FAILED}\n{text}"
    assert read(json.dumps([failed, 0, 0.5]), kind) == found


@pytest.mark.parametrize(
    "text",
    ["", "7", "[]", json.dumps(["========= it failed", 0, 0.5]), "[" * 9999, json.dumps(CLEAN)],
)
def test_without_a_summary_there_is_no_finding(text):
    assert read(text, "memcheck") is None


@given(st.text() | st.just(RACE), st.integers())
def test_no_text_of_a_candidate_is_more_than_a_finding(text, code):
    found = read(json.dumps([text, code, 0.5]), "racecheck")
    assert found is None or isinstance(found, Finding)


def tool(folder, text):
    path = folder / "tool"
    path.write_text(text.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_the_tool_gets_the_candidates_file_and_only_its_own_lines_count(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = tool_process.observe([tool(tmp_path, TOOL), "--tool", "memcheck"], "candidate.py", {})
    assert "called with --tool memcheck candidate.py" in tool_process.read(said).text
    assert read(said, "memcheck") == Finding(0)


def test_a_program_under_a_tool_has_every_module_of_this_package_that_its_modules_import():
    known: list[str] = []
    for name in tool_process._CARRIED:
        tree = ast.parse(Path(importlib.util.find_spec(name).origin).read_text())
        wanted = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
        assert {each for each in wanted if each.startswith("evolve")} <= set(known), name
        known.append(name)


def test_a_tool_whose_child_hangs_is_ended_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(tool_process, "SECONDS", 0.5)
    monkeypatch.chdir(tmp_path)
    hanging = tool(tmp_path, "#!/bin/sh\nsleep 30 &\necho $! > pid\nwait\n")
    began = time.monotonic()
    said = tool_process.read(tool_process.observe([hanging], "candidate.py", {}))
    assert time.monotonic() - began < 10
    assert "TimeoutExpired" in said.text
    stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    while stat.exists() and stat.read_text().rpartition(") ")[2][0] != "Z":
        assert time.monotonic() - began < 20, "the child lives"
        time.sleep(0.05)


def test_a_tool_that_hangs_or_is_not_there_is_no_finding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tool_process, "SECONDS", 0.2)
    slow = tool(tmp_path, "#!{python}\nimport time\ntime.sleep(30)\n")
    assert read(tool_process.observe([slow], "candidate.py", {}), "memcheck") is None
    said = tool_process.observe(["/nowhere/tool"], "candidate.py", {})
    assert read(said, "memcheck") is None
    assert "No such file or directory: '/nowhere/tool'" in last_words(said)


@given(st.text(), st.integers())
def test_of_a_tool_without_a_result_its_last_line_is_told(text, code):
    printed = f"{text}\n========= Error: no device\n=========\nValueError: by the program\n"
    assert last_words(json.dumps([printed, code, 0.5])) == "Error: no device"


def test_where_the_tool_said_nothing_the_programs_last_line_is_told():
    assert last_words(json.dumps(["one\ntwo\n\n", 1, 0.5])) == "two"
    assert last_words("{") == "not a word"


# Says of its call what a tool would see: what it packed, and where the memory of its input ends.
TALKING = """
import torch
from torch import nn
{before}

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.packed = self.layer.weight.detach().float().sum()

    def forward(self, x):
        print("packed", float(self.packed), "in", self.layer.weight.dtype)
        print("behind", x.untyped_storage().nbytes() - x.nbytes)
        {body}
        return self.layer(x)
"""
BUILDING = """
import os
from tvm_ffi.cpp import load_inline
kernels = load_inline("one", cpp_sources="int one() {{ return 1; }}", functions="one")
print("file", os.path.abspath(__file__))
"""


def isolated_call(launcher, source, build=None, tool=("/usr/bin/env",), init=(), more=()):
    """What is said of a call on an input, and the sum of the weights.

    The constructor gets the width and `init`, the call the input and `more`.
    """
    torch.manual_seed(0)
    layer = nn.Linear(3, 3).bfloat16()
    state = {f"layer.{name}": value for name, value in layer.state_dict().items()}
    arguments = shared({"init": [3, *init], "state": state})
    inputs = shared([torch.ones(2, 3, dtype=torch.bfloat16), *more])
    # Builds are where a runner may read them.
    readable = (build,) if build else ()
    with launcher.start(CPP, readable=readable, observed=True) as runner:
        runner.load("candidate", source, 60.0, build)
        runner.construct(0, 1, arguments, 20.0)
        said = tool_process.read(runner.run_isolated(0, inputs, tool, 60.0))
    return said, float(layer.weight.detach().float().sum())


@pytest.mark.slow
def test_the_call_is_the_candidates_on_inputs_that_end_where_their_memory_does(launcher):
    said, weights = isolated_call(launcher, TALKING.format(before="", body=""))
    assert said.code == 0, said.text
    assert f"packed {weights} in torch.bfloat16" in said.text
    assert "behind 0" in said.text


@pytest.mark.slow
def test_what_was_built_is_not_built_again(launcher, tmp_path):
    tmp_path.chmod(0o755)
    source = TALKING.format(before=BUILDING.format(), body="assert kernels.one() == 1")
    builds = BuildCache(tmp_path / "builds")
    with launcher.start(CPP) as runner:
        runner.load("candidate", source, 60.0, may_build=True)
        build = builds.keep("key", runner.folder)
    no_compiler = ("/usr/bin/env", "CXX=/nonexistent", "PATH=/nonexistent")
    said, _ = isolated_call(launcher, source, build, no_compiler)
    assert said.code == 0, said.text


# What compute-sanitizer does (seen of its system calls): it reads of itself and of the process that
# it starts, and speaks with that by pipes in the temporary folder and a socket without a file.
ASKING = """#!{python}
import os, socket, subprocess, sys, tempfile
folder = tempfile.mkdtemp()
os.mkfifo(os.path.join(folder, "pipe"))
server = socket.socket(socket.AF_UNIX)
server.bind(chr(0) + "nv_target_process")
server.listen()
target = '''
import os, socket, sys
open("/proc/self/maps").read(), open(f"/proc/{{os.getpid()}}/status").read()
os.open(sys.argv[1], os.O_RDWR)
socket.socket(socket.AF_UNIX).connect(chr(0) + "nv_target_process")
'''
command = [sys.executable, "-c", target, os.path.join(folder, "pipe")]
open(f"/proc/{{subprocess.Popen(command).pid}}/maps").read()
server.accept()
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_tool_can_ask_and_hear_of_the_process_that_it_starts(launcher, tmp_path):
    tmp_path.chmod(0o755)
    asking, source = tool(tmp_path, ASKING), TALKING.format(before="", body="")
    said, weights = isolated_call(launcher, source, str(tmp_path), (asking,))
    assert f"packed {weights}" in said.text, said.text


CLASSES = """
from dataclasses import dataclass
from torch import Tensor

@dataclass
class Rows:
    order: Tensor
    scale: float = 2.0

class Config:
    def __init__(self, gain):
        self.gain = gain
"""
CONFIGURED = """
import torch
from torch import nn
{classes}

class ModelNew(nn.Module):
    def __init__(self, width, config):
        super().__init__()
        self.layer, self.gain = nn.Linear(width, width), config.gain

    def forward(self, x, rows):
        print("told", type(rows).__name__, rows.order.tolist(), rows.scale * self.gain)
        return self.layer(x[rows.order])
"""


@pytest.mark.sample(1)  # each imports torch anew
@pytest.mark.parametrize("classes", ["", CLASSES, "class Config:\n    pass"])
def test_a_program_gets_objects_of_the_tasks_own_classes_under_a_tool_too(
    launcher, monkeypatch, classes
):
    own = ModuleType("evolve_task_of_a_test")
    exec(CLASSES, own.__dict__)
    monkeypatch.setitem(sys.modules, own.__name__, own)
    given = {"init": [own.Config(3.0)], "more": [own.Rows(torch.tensor([1, 0]))]}
    said, _ = isolated_call(launcher, CONFIGURED.format(classes=classes), **given)
    assert said.code == 0, said.text
    assert "told Rows [1, 0] 6.0" in said.text


def test_a_program_that_fails_under_the_tool_says_so_by_its_code(launcher):
    said, _ = isolated_call(launcher, TALKING.format(before="", body="raise ValueError"))
    assert said.code == 1
