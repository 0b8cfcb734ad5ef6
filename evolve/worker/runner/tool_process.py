"""One call of a candidate under a tool, in a process of its own inside of the runner's sandbox.

For tools that have to start the process that they look at. No file of this package is there to be
read: the program finds the candidate's file, in `CALL_FILE` the arguments of its constructor and
forward, and in its own text the few modules of this package that it needs.
"""

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evolve.worker.ipc.task_classes import PROGRAM_MODULE

CALL_FILE = "call.pt"
SECONDS = 20.0  # in which it may work, beside those in which it is stopped for others' timing
_STEP_S = 0.1  # of waiting; as long as it is stopped, so is this clock
_MAX_TEXT = 6000
_CARRIED = ("evolve.core.digest", "evolve.languages.builds", "evolve.languages.inline",
            "evolve.worker.reference.seeding", "evolve.worker.reference.parameters",
            "evolve.worker.ipc.pytree", "evolve.worker.ipc.task_classes",
            "evolve.worker.runner.weights", "evolve.worker.reference.conditions")  # fmt: skip


def _text_of(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text()


# Read now: where the program is started there are no such files.
_PROGRAM = f"""
import sys, types, torch
for name, text in {[(name, _text_of(name)) for name in _CARRIED]!r}:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
inline = sys.modules["evolve.languages.inline"]
weights = sys.modules["evolve.worker.runner.weights"]
build, path = sys.argv[1:]
source = open(path).read()
inline.keep_builds(source, build or None, False)
module = types.ModuleType("{PROGRAM_MODULE}")
module.__file__ = path
sys.modules["{PROGRAM_MODULE}"] = module
exec(compile(source, path, "exec"), module.__dict__)
saved = torch.load("{CALL_FILE}", weights_only=False)  # objects of the program's classes too
place = torch.device(saved["place"])
model = weights.construct(module.ModelNew, saved["seed"], saved["init"], saved["state"], place)
ways = sys.modules["evolve.worker.reference.conditions"]
conditions = ways.Conditions(**saved["conditions"])
model = ways.wrapped(conditions.apply_like(model), conditions)
with torch.no_grad():
    model(*saved["inputs"])
if place.type == "cuda":
    torch.cuda.synchronize()
"""


class Said(NamedTuple):
    """A tool's output, its exit code, and the seconds that it worked while it was not stopped."""

    text: str
    code: int
    seconds: float


def observe(tool: Sequence[str], source: str, call: dict[str, Any]) -> str:
    """A tool's (a program with options) report on a call, as JSON for `read`.

    Args:
        tool: A program and its options.
        source: The candidate's file. Prints of the candidate are part of the report.
        call: `init`, `state`, `seed`, `conditions` and `place` of the model, `inputs` of the call,
            and the folder `build` of the source's build. Tensors own their memory.
    """
    torch.save(call, CALL_FILE)
    # Without torch's own cache of memory, which would put reads behind a tensor in bounds.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        with subprocess.Popen(
            [*tool, sys.executable, "-c", _PROGRAM, call.get("build") or "", source],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env=environment, start_new_session=True,
        ) as process:  # fmt: skip
            output, errors, seconds = _ended(process)
    except (OSError, subprocess.TimeoutExpired) as error:
        return json.dumps(Said(f"{type(error).__name__}: {error}"[:_MAX_TEXT], -1, SECONDS))
    printed = output + (errors if process.returncode else "")
    return json.dumps(Said(printed[-_MAX_TEXT:], process.returncode, seconds))


def _ended(process: subprocess.Popen[str]) -> tuple[str, str, float]:
    """Its output, errors and own seconds; after `SECONDS` it is killed, with its children."""
    for step in range(int(SECONDS / _STEP_S)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return *process.communicate(timeout=_STEP_S), step * _STEP_S
    os.killpg(process.pid, signal.SIGKILL)
    raise subprocess.TimeoutExpired(process.args, SECONDS)


def read(text: str) -> Said:
    """A tool's output as a runner reports it; nothing, and a failure, if it is malformed."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    match said:
        case [str(printed), int(code), float(seconds)]:
            return Said(printed, code, seconds)
    return Said("", -1, 0.0)
