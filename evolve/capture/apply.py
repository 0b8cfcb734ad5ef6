"""Winners put back into a script: one checking pass, then original and patched in turn."""

import math
import random
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
MAX_COMPARED = 8  # calls of one winner in one timed run that the original makes too

_DIFFERS = "a winner agrees in the checking pass, and differs when it is timed"
_NOT_COMPARED = (
    "no call of {} could be compared in the timed runs: those that were chosen are recorded in "
    "graphs, or not made there"
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What timed runs gave.

    Attributes:
        gain: None if `reason` says why.
        tallies: calls of the patched runs by the task's name; `agreed` and `differences` are those
            of the calls that were compared.
        reason: a winner differed, which ends the runs, or no call of it could be compared.
    """

    gain: Gain | None
    tallies: Sequence[tuple[str, Tally]]
    reason: str = ""


def check(run: RunScript, chosen: Sequence[Chosen]) -> list[tuple[str, Tally]]:
    """Run the script with every call made by both; names of the tasks with the calls compared.

    Raises:
        UsageError: the script fails.
    """
    found = run({"purpose": APPLY, "winners": as_json(chosen), "checks": True})
    pairs = zip(chosen, found["tallies"], strict=True)
    return [(one.task.name, Tally(**tally)) for one, tally in pairs]


def measure(run: RunScript, chosen: Sequence[Chosen], pairs: int, calls: Sequence[int]) -> Timed:
    """Run the script in fresh processes, original and patched in turn; `MIN_PAIRS` at least.

    Every patched run compares calls with the original's, outside of the time: a winner may agree
    wherever all of its calls are compared, and give something else later.

    Args:
        run: the script.
        chosen: winners.
        pairs: of processes.
        calls: that each winner makes in one run, as the checking pass has found.

    Raises:
        UsageError: the script fails, or a winner.
    """
    plain = {"purpose": APPLY, "winners": [], "checks": False}
    tallies = [Tally() for _ in chosen]
    named = [(one.task.name, tally) for one, tally in zip(chosen, tallies, strict=True)]
    original_s: list[float] = []
    patched_s: list[float] = []
    built = 0.0
    for is_patched in islice(cycle((False, True, True, False)), 2 * pairs):
        winners = as_json(chosen, [_drawn(number) for number in calls]) if is_patched else []
        found = run({**plain, "winners": winners})
        if failure := found.get("failure"):
            raise UsageError(
                f"{failure}, in a timed run; all its calls agreed in the checking pass. Leave this "
                "winner out, or mend it."
            )
        (patched_s if is_patched else original_s).append(found["total_s"])
        built = max(built, found["built_s"])
        for tally, one in zip(tallies, found["tallies"] if is_patched else (), strict=False):
            tally.add(Tally(**one))
        if any(tally.differences for tally in tallies):
            return Timed(gain=None, tallies=named, reason=_DIFFERS)
    for (name, one), number in zip(named, calls, strict=True):
        if number and not one.agreed:
            return Timed(gain=None, tallies=named, reason=_NOT_COMPARED.format(name))
    return Timed(gain=_gain(original_s, patched_s, built), tallies=named)


def _drawn(calls: int) -> list[int]:
    """Numbers of the calls of a winner that a run compares; a winner cannot predict them."""
    return random.sample(range(calls), min(MAX_COMPARED, calls))


def _gain(original_s: Sequence[float], patched_s: Sequence[float], built_s: float) -> Gain:
    from evolve.worker.timing import statistics  # imports torch

    logs = [math.log(a / b) for a, b in zip(original_s, patched_s, strict=True)]
    return Gain(
        ratio=statistics.ratio_interval(logs, statistics.interim_of(len(logs)), spread=0.0),
        original_ms=statistics.median_interval([1e3 * one for one in original_s]),
        patched_ms=statistics.median_interval([1e3 * one for one in patched_s]),
        built_s=built_s,
        pairs=len(logs),
    )


def as_json(
    chosen: Sequence[Chosen], compared: Sequence[Sequence[int]] = ()
) -> list[dict[str, Any]]:
    """Programs with the calls of their tasks, for a job.

    Args:
        chosen: programs.
        compared: of each, the numbers of its calls that are compared in a timed run; none if empty.
    """
    numbers = compared or [()] * len(chosen)
    return [
        {
            "name": one.task.name,
            "part": one.task.part,
            "device": one.task.device,
            "architecture": one.architecture,
            "calls": repr(list(one.task.calls.values())),
            "source": one.source,
            "is_backward": one.task.is_backward,
            "compared": list(some),
        }
        for one, some in zip(chosen, numbers, strict=True)
    ]
