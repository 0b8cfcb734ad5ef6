"""NVIDIA's compute-sanitizer on one call of a candidate, at verification, if the tool is there.

It runs inside of the candidate's sandbox (`tool_process`), on the smallest case. `memcheck` finds
reads and writes out of bounds, also those that hit other mapped memory; `racecheck` finds hazards
in shared memory. Its report comes out of the candidate's sandbox: an error found counts against the
candidate, and no error is no proof.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolve.core.evaluation import Label, Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.feedback import plain
from evolve.worker.runner import tool_process

if TYPE_CHECKING:
    from evolve.worker.session.candidate_session import Candidate, CandidateSession
    from evolve.worker.session.prepared_task import PreparedCase

NAME = "compute-sanitizer"
NO_RESULT = "no_"  # before the name of a tool that gave none
TOOLS = {
    "memcheck": ("--padding", "65536"),  # bytes behind an allocation; else the next lies there
    "racecheck": (),
}
_SUMMARY = {
    "memcheck": re.compile(r"ERROR SUMMARY: (\d+) error"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) error"),
}
_MARK = "========="
_FAILED = "Target application returned an error"
_HEADLINE = re.compile(r"(?:Invalid|Misaligned|Warp|Address|Uninitialized|Race)\b.*")


@dataclass(frozen=True, slots=True)
class Finding:
    """How many errors were found, and the first of them in the tool's words."""

    errors: int
    first: str = ""


def read(text: str, kind: str) -> Finding | None:
    """The tool's message in a runner's report; None if that is no result.

    A program that fails by itself may have launched nothing: then that no error was found is none.
    """
    printed, code, _ = tool_process.read(text)
    said = "\n".join(line for line in printed.splitlines() if line.startswith(_MARK))
    if not (summary := _SUMMARY[kind].search(said)):
        return None
    errors = int(summary[1])
    if not errors and (code or _FAILED in said):
        return None
    headline = _HEADLINE.search(said)
    return Finding(errors, plain(headline[0], 160) if headline else "")


def sanitise_call(
    session: "CandidateSession", candidate: "Candidate", case: "PreparedCase", tool: str, kind: str
) -> tuple[Label, float]:
    """The findings of one of `TOOLS`, or why it gave no result, and the seconds that it worked.

    Hazards stay a label: on asynchronous copies and barriers racecheck is known to err.

    Args:
        session: Where its process comes from.
        candidate: That has passed the checks.
        case: Of which one call is looked at.
        tool: Path of compute-sanitizer.
        kind: Of `TOOLS`.

    Raises:
        CandidateFault: memcheck has found an error.
    """
    command = (tool, "--tool", kind, "--report-api-errors", "no", "--print-limit", "2",
               *TOOLS[kind])  # fmt: skip
    try:
        text = session.observed(candidate, case, command)
    except CandidateFault as fault:  # the same call was right without the tool
        return Label(f"{NO_RESULT}{kind}", plain(fault.feedback, 160)), 0.0
    found, seconds = read(text, kind), tool_process.read(text).seconds
    if found is None:
        why = f"the tool gave no result: {last_words(text)}"
        return Label(f"{NO_RESULT}{kind}", why), seconds
    if not found.errors:
        return Label(kind, "no error in one call"), seconds
    if kind != "memcheck":
        said = f"{found.errors} errors in one call: {found.first}".rstrip(": ")
        return Label(kind, said), seconds
    raise CandidateFault(
        Status.ILLEGAL_ACCESS,
        f"case {case.case.name}: right, but compute-sanitizer (memcheck) finds "
        f"{found.errors} errors: {found.first}. Mask every load and store.",
    )


def last_words(text: str) -> str:
    """The end of a tool's run as a runner reports it: by the tool, or by the program under it."""
    lines = [line for line in tool_process.read(text).text.splitlines() if line.strip("= ")]
    told = [line for line in lines if line.startswith(_MARK)] or lines
    return plain(told[-1].strip("= "), 160) if told else "not a word"
