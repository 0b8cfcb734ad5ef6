"""A few of the GPU's own counters for a candidate's kernels, by Nsight Compute.

Many hosts forbid counters to all but root; then there are none, and nothing is said about it. One
call on a timed case, in a process of its own (`tool_process`), at verification: it takes seconds.
Its report comes out of the candidate's sandbox, and is a label for people and models.
"""

import csv
import math
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from evolve.core.evaluation import Label
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.feedback import plain
from evolve.worker.base.host_facts import find_tool
from evolve.worker.runner import tool_process

if TYPE_CHECKING:
    from evolve.worker.session.candidate_session import Candidate, CandidateSession
    from evolve.worker.session.prepared_task import PreparedTask

COUNTERS = "counters"  # the label's name

_NAMED = 2
_LAUNCHES = "8"  # of these kernels
_DURATION = "gpu__time_duration.sum"
_COUNTERS = {
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "memory {:.0f} % of its peak",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "arithmetic {:.0f} %",
    "lts__t_sector_hit_rate.pct": "second-level cache hit {:.0f} %",
    "smsp__thread_inst_executed_per_inst_executed.ratio": "{:.0f} of 32 lanes active",
}


def count(
    session: "CandidateSession", candidate: "Candidate", task: "PreparedTask", own: Collection[str]
) -> list[Label]:
    """Labels for the longest of the candidate's kernels, whose names are `own`; or none."""
    tool, case = find_tool("ncu"), task.timed[0]
    names = [name for name in own if re.fullmatch(r"\w+", name)]
    if tool is None or not names:
        return []
    metrics = ",".join([_DURATION, *_COUNTERS])
    command = (tool, "--csv", "--page", "raw", "--metrics", metrics, "--launch-count", _LAUNCHES,
               "--kernel-name", f"regex:^({'|'.join(names)})$")  # fmt: skip
    try:
        text = session.observed(candidate, case, command)
    except CandidateFault:  # the same call was right without the tool
        return []
    said = tool_process.read(text)
    return [] if said.code else list(labels(said.text, own))


def labels(printed: str, own: Collection[str]) -> Iterator[Label]:
    """The tool's figures for kernels of these names, the longest first."""
    lines = printed.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = csv.DictReader(line for line in lines[start:] if line.startswith('"'))
    mine = [row for row in rows if _base(row.get("Kernel Name")) in own]
    seen: dict[str, dict[str, str]] = {}
    for row in sorted(mine, key=lambda row: -_number(row.get(_DURATION))):
        seen.setdefault(_base(row["Kernel Name"]), row)
    for name, row in list(seen.items())[:_NAMED]:
        values = {text: _number(row.get(counter)) for counter, text in _COUNTERS.items()}
        said = [text.format(value) for text, value in values.items() if value >= 0]
        if said:
            yield Label(COUNTERS, f"{plain(name, 60)}: {', '.join(said)}")


def _base(name: str | None) -> str:
    return (name or "").partition("(")[0].strip()


def _number(text: str | None) -> float:
    """A counter's value; -1 if it has none."""
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return -1.0
    return value if math.isfinite(value) else -1.0
