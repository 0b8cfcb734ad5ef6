"""Winners put back into a script: one checking pass, then original and patched in turn."""

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evolve.capture.jobs import APPLY, Part, Tally
from evolve.capture.processes import Run
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval, Ratio
from evolve.core.task import Task

LEAST_PAIRS = 6  # of which an interval of ranks covers 95 %
ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured task by its name, and the calls that its file describes."""

    name: str
    part: Part
    device: str
    calls: Sequence[Any]


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


def check(run: Run, chosen: Sequence[Chosen]) -> list[tuple[str, Tally]]:
    """Run the script with every call made by both; names of the tasks with the calls compared.

    Raises:
        UsageError: the script fails.
    """
    found = run({"purpose": APPLY, "winners": as_json(chosen), "checks": True})
    pairs = zip(chosen, found["tallies"], strict=True)
    return [(one.task.name, Tally(**tally)) for one, tally in pairs]


def measure(run: Run, chosen: Sequence[Chosen], pairs: int) -> Gain:
    """Run the script in fresh processes, original and patched in turn; `LEAST_PAIRS` at least.

    Raises:
        UsageError: the script fails.
    """
    from evolve.worker.session.plan import Interim  # imports torch, as the next does
    from evolve.worker.timing.statistics import alpha_of, median_interval, ratio_interval

    plain = {"purpose": APPLY, "winners": [], "checks": False}
    patched = {**plain, "winners": as_json(chosen)}
    jobs = [(plain, patched)[(n + n // 2) % 2] for n in range(2 * pairs)]  # ABBA
    times: tuple[list[float], list[float]] = ([], [])
    built = 0.0
    for job in jobs:
        found = run(job)
        times[job is patched].append(found["total_s"])
        built = max(built, found["built_s"])
    left_out = 0  # Walsh averages, at either end of an interval of 95 %
    while alpha_of(Interim(pairs, left_out + 1)) <= ALPHA:
        left_out += 1
    logs = [math.log(a / b) for a, b in zip(*times, strict=True)]
    return Gain(
        ratio=ratio_interval(logs, Interim(pairs, left_out), spread=0.0),
        original_ms=median_interval([1e3 * one for one in times[0]]),
        patched_ms=median_interval([1e3 * one for one in times[1]]),
        built_s=built,
        pairs=pairs,
    )


def captured(task: Task) -> Captured:
    """The calls that a task was made of.

    Raises:
        UsageError: it was not captured.
    """
    values = {}
    for statement in ast.parse(task.source).body:
        match statement:
            case ast.Assign([ast.Name("PART" | "CALLS" as name)], ast.Dict() as value):
                values[name] = ast.literal_eval(value)
    if len(values) != 2:
        raise UsageError(
            f"task {task.name} was not captured: its file has no PART and CALLS. Tasks to put back "
            "are made by `evolve tasks capture`."
        )
    part = values["PART"]
    device = part.pop("device")
    return Captured(task.name, Part(**part), device, list(values["CALLS"].values()))


def as_json(chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    """Programs with the calls of their tasks, for a job."""
    return [
        {
            "name": one.task.name,
            "part": one.task.part,
            "device": one.task.device,
            "architecture": one.architecture,
            "calls": repr(one.task.calls),
            "source": one.source,
        }
        for one in chosen
    ]
