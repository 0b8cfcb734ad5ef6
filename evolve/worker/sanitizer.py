"""NVIDIA's compute-sanitizer on one call of a candidate, at verification, where the tool is there.

It runs inside of the candidate's sandbox, on an interpreter of its own that makes the same call on
the smallest case. `memcheck` finds reads and writes out of bounds, also those that hit memory which
happens to be there; `racecheck` finds hazards in shared memory. What it says comes out of the
candidate's sandbox: an error found counts against the candidate, and no error is no proof.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolve.core.evaluation import Label, Status
from evolve.worker.faults import CandidateFault
from evolve.worker.feedback import plain

if TYPE_CHECKING:
    from evolve.worker.stages import Candidate, Workshop
    from evolve.worker.warm import WarmTask

CALL_FILE = "call.pt"
TOOLS = ("memcheck", "racecheck")
_SECONDS = 60.0
_PLACES = "/usr/local/cuda/bin"
_MOST_TEXT = 6000
_SUMMARY = {
    "memcheck": re.compile(r"ERROR SUMMARY: (\d+) error"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) error"),
}
_HEADLINE = re.compile(r"(?:Invalid|Misaligned|Warp|Address|Uninitialized|Race)\b.*")

# Runs in the folder of the runner, with nothing of ours.
_PROGRAM = f"""
import sys, types, torch
saved = torch.load("{CALL_FILE}", weights_only=False)
module = types.ModuleType("candidate")
module.__file__ = sys.argv[1]
sys.modules["candidate"] = module
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), module.__dict__)
with torch.device("cuda"):
    model = module.ModelNew(*saved["init"])
model.to("cuda").load_state_dict(saved["state"], strict=False)
with torch.no_grad():
    model.eval()(*saved["inputs"])
torch.cuda.synchronize()
"""


# --- the runner's side --------------------------------------------------------------------------


def observe(tool: str, kind: str, source: str) -> str:
    """JSON of what the tool said; `source` is the candidate's file, its call is in `CALL_FILE`."""
    command = [tool, "--tool", kind, "--report-api-errors", "no", "--print-limit", "2"]
    # Without torch's own cache of memory, or what lies behind a tensor would be in bounds.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [*command, sys.executable, "-c", _PROGRAM, source],
            capture_output=True, text=True, timeout=_SECONDS, env=environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return json.dumps(f"{type(error).__name__}: {error}")
    lines = [line for line in done.stdout.splitlines() if line.startswith("=========")]
    return json.dumps("\n".join(lines)[-_MOST_TEXT:])


# --- the referee's side -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """How many errors were found, and the first of them in the tool's words."""

    errors: int
    first: str = ""


def find_tool() -> str | None:
    """The path of compute-sanitizer on this host."""
    name = "compute-sanitizer"
    return shutil.which(name) or shutil.which(name, path=_PLACES)


def read(text: str, kind: str) -> Finding | None:
    """What a runner says that the tool said; None where that is no result."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, str) or not (summary := _SUMMARY[kind].search(said)):
        return None
    headline = _HEADLINE.search(said)
    return Finding(int(summary[1]), plain(headline[0], 160) if headline else "")


def sanitise_call(
    workshop: "Workshop", candidate: "Candidate", task: "WarmTask"
) -> Iterator[Label]:
    """What the tools find, as labels; nothing where they are not there or do not run.

    Hazards stay a label: on asynchronous copies and barriers racecheck is known to err.

    Raises:
        CandidateFault: memcheck has found an error.
    """
    tool, case = find_tool(), task.smallest
    if tool is None:
        return
    for kind in TOOLS:
        try:
            with (
                workshop.loaded(candidate, [case]) as runner,
                workshop.device.share(case.check("task", 1).inputs) as inputs,
            ):
                found = read(runner.sanitise(case.index, inputs, tool, kind, 2 * _SECONDS), kind)
        except CandidateFault:  # the same call was right without the tool
            continue
        if found and found.errors and kind == "memcheck":
            raise CandidateFault(
                Status.ILLEGAL_ACCESS,
                f"case {case.case.name}: right, but compute-sanitizer (memcheck) finds "
                f"{found.errors} errors: {found.first}. Mask every load and store.",
            )
        if found:
            evidence = f"{found.errors} errors in one call: {found.first}".rstrip(": ")
            yield Label(kind, evidence if found.errors else "no error in one call")
