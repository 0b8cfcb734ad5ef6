"""Winners put back into a script: one checking pass, then original and patched in turn."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

from evolve.capture.jobs import APPLY, Tally
from evolve.capture.processes import RunScript
from evolve.capture.task_file import Captured
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval, Ratio

MIN_PAIRS = 6  # of which an interval of ranks covers 95 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A program for a captured task; `architecture` it was judged on, empty if it was not."""

    task: Captured
    source: str
    architecture: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Times of the script end to end.

    Attributes:
        ratio: original over patched, with its 95 % interval over pairs of processes.
        original_ms: from the first call to the end of the script.
        patched_ms: the same with the winners, without the time to build them.
        built_s: that time, the most of all processes.
        pairs: of processes.
    """

    ratio: Ratio
    original_ms: Interval
    patched_ms: Interval
    built_s: float
    pairs: int


def check(run: RunScript, chosen: Sequence[Chosen]) -> list[tuple[str, Tally]]:
    """Run the script with every call made by both; names of the tasks with the calls compared.

    Raises:
        UsageError: the script fails.
    """
    found = run({"purpose": APPLY, "winners": as_json(chosen), "checks": True})
    pairs = zip(chosen, found["tallies"], strict=True)
    return [(one.task.name, Tally(**tally)) for one, tally in pairs]


def measure(run: RunScript, chosen: Sequence[Chosen], pairs: int) -> Gain:
    """Run the script in fresh processes, original and patched in turn; `MIN_PAIRS` at least.

    Raises:
        UsageError: the script fails, or a winner.
    """
    from evolve.worker.timing import statistics  # imports torch

    plain = {"purpose": APPLY, "winners": [], "checks": False}
    original_s: list[float] = []
    patched_s: list[float] = []
    original, patched = (plain, original_s), ({**plain, "winners": as_json(chosen)}, patched_s)
    built = 0.0
    for job, times in islice(cycle((original, patched, patched, original)), 2 * pairs):
        found = run(job)
        if failure := found.get("failure"):
            raise UsageError(
                f"{failure}, in a timed run; all its calls agreed in the checking pass. Leave this "
                "winner out, or mend it."
            )
        times.append(found["total_s"])
        built = max(built, found["built_s"])
    logs = [math.log(a / b) for a, b in zip(original_s, patched_s, strict=True)]
    return Gain(
        ratio=statistics.ratio_interval(logs, statistics.interim_of(pairs), spread=0.0),
        original_ms=statistics.median_interval([1e3 * one for one in original_s]),
        patched_ms=statistics.median_interval([1e3 * one for one in patched_s]),
        built_s=built,
        pairs=pairs,
    )


def as_json(chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    """Programs with the calls of their tasks, for a job."""
    return [
        {
            "name": one.task.name,
            "part": one.task.part,
            "device": one.task.device,
            "architecture": one.architecture,
            "calls": repr(list(one.task.calls.values())),
            "source": one.source,
        }
        for one in chosen
    ]
