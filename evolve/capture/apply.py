"""Winners put back into a script: one checking pass, then original and patched in turn."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evolve.capture.jobs import APPLY, Part
from evolve.capture.processes import Run
from evolve.core.errors import UsageError
from evolve.core.measurement import Interval, Ratio
from evolve.core.task import Task

LEAST_PAIRS = 6  # of which an interval of ranks covers 95 %
ALPHA = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A program for a captured task; `architecture` it was judged on, empty if it was not."""

    task: Task
    source: str
    architecture: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The calls of a task's part in the checking pass.

    Attributes:
        name: of the task.
        made: calls that the winner made.
        fallbacks: number of calls that the original made, by reason.
        agreed: of the winner's calls, those with the original's outcome.
        differences: number of the others, by how they differ.
    """

    name: str
    made: int
    agreed: int
    fallbacks: Mapping[str, int]
    differences: Mapping[str, int]


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


def check(run: Run, chosen: Sequence[Chosen]) -> list[Outcome]:
    """Run the script with every call made by both, and compare.

    Raises:
        UsageError: the script fails, or a task was not captured.
    """
    found = run({"purpose": APPLY, "winners": as_json(chosen), "checks": True})
    return [
        Outcome(name=one.task.name, **tally)
        for one, tally in zip(chosen, found["tallies"], strict=True)
    ]


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


@dataclass(frozen=True, slots=True)
class Captured:
    """The calls that a captured task's file describes."""

    part: Part
    device: str
    calls: list[Any] = field(default_factory=list)


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
    return Captured(Part(**part), device, list(values["CALLS"].values()))


def as_json(chosen: Sequence[Chosen]) -> list[dict[str, Any]]:
    """Programs with the calls of their tasks, for a job.

    Raises:
        UsageError: a task was not captured.
    """
    found = []
    for one in chosen:
        facts = captured(one.task)
        found.append(
            {
                "name": one.task.name,
                "part": facts.part,
                "device": facts.device,
                "architecture": one.architecture,
                "calls": repr(facts.calls),
                "source": one.source,
            }
        )
    return found
