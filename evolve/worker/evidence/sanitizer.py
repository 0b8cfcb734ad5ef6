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
from evolve.worker.base.host_facts import find_tool
from evolve.worker.runner import tool_process

if TYPE_CHECKING:
    from evolve.worker.session.candidate_session import Candidate, CandidateSession
    from evolve.worker.session.prepared_task import PreparedCase, PreparedTask

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
    printed, code = tool_process.read(text)
    said = "\n".join(line for line in printed.splitlines() if line.startswith(_MARK))
    if not (summary := _SUMMARY[kind].search(said)):
        return None
    errors = int(summary[1])
    if not errors and (code or _FAILED in said):
        return None
    headline = _HEADLINE.search(said)
    return Finding(errors, plain(headline[0], 160) if headline else "")


def sanitise_call(
    session: "CandidateSession", candidate: "Candidate", task: "PreparedTask", kind: str
) -> list[Label]:
    """The findings of one of `TOOLS`, or why it gave no result; nothing if it is not installed.

    Hazards stay a label: on asynchronous copies and barriers racecheck is known to err.

    Raises:
        CandidateFault: memcheck has found an error.
    """
    tool = find_tool(NAME)
    return [_said_of(session, candidate, task.smallest, tool, kind)] if tool else []


def _said_of(
    session: "CandidateSession", candidate: "Candidate", case: "PreparedCase", tool: str, kind: str
) -> Label:
    command = (tool, "--tool", kind, "--report-api-errors", "no", "--print-limit", "2",
               *TOOLS[kind])  # fmt: skip
    try:
        text = session.observed(candidate, case, command)
    except CandidateFault as fault:  # the same call was right without the tool
        return Label(f"{NO_RESULT}{kind}", plain(fault.feedback, 160))
    found = read(text, kind)
    if found is None:
        return Label(f"{NO_RESULT}{kind}", f"the tool gave no result: {last_words(text)}")
    if not found.errors:
        return Label(kind, "no error in one call")
    if kind != "memcheck":
        return Label(kind, f"{found.errors} errors in one call: {found.first}".rstrip(": "))
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
