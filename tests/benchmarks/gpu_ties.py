"""How often the interval of a program against itself excludes 1.0, and how wide it is.

The reference is timed against itself, in fresh processes each time. Runs of a task follow each
other, so that what is warm stays so, and a few are under way at once: while one has the GPU to
itself the next are made ready. Half of the problems are KernelBench's where KERNELBENCH_PATH is
set; all have references that take less than 10 ms on an H200.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from evolve.core.task import Task
from evolve.tasks.suites.kernelbench import VARIABLE
from tests.worker.serving import Worker

PROBLEMS = ("1/1", "1/12", "1/40", "1/88", "2/12", "2/29", "2/63", "2/68", "2/70", "2/86")
_AHEAD = 3
_PATIENCE_S = 300
_TARGET = 0.01


@dataclass
class Found:
    """What the runs of one task gave."""

    task: Task
    rows: list[dict[str, Any]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @property
    def widths(self) -> list[float]:
        return [row["half_width"] for row in self.rows]

    @property
    def excluded(self) -> int:
        return sum(not row["ratio"][1] <= 1.0 <= row["ratio"][2] for row in self.rows)


def default_problems() -> Sequence[str]:
    """Of KernelBench, where there is a checkout."""
    return PROBLEMS if os.environ.get(VARIABLE) else ()


def against_itself(worker: Worker, tasks: Sequence[Task], options: argparse.Namespace) -> None:
    """Run and print; no run is begun after `options.seconds`."""
    start = time.monotonic()
    runs = ((Found(task), number) for task in tasks for number in range(options.runs))
    found: dict[str, Found] = {}
    for one, reply in _ahead(worker, runs, start + options.seconds):
        known = found.setdefault(one.task.name, one)
        if "result" in reply:
            known.rows.append(reply["result"])
        else:
            known.errors.append(reply["error"]["message"][:200])
        if len(known.rows) + len(known.errors) == options.runs:
            _print_task(known)
    _print_all(list(found.values()), len(tasks), time.monotonic() - start)


def _ahead(
    worker: Worker, runs: Iterator[tuple[Found, int]], until: float
) -> Iterator[tuple[Found, dict[str, Any]]]:
    """Replies in order, with a few requests sent ahead of them."""
    sent: list[tuple[Found, Future[dict[str, Any]]]] = []
    for one, _ in runs:
        if time.monotonic() > until:
            break
        sent.append((one, worker.send("noise", task=one.task.to_json())))
        if len(sent) == _AHEAD:
            first, future = sent.pop(0)
            yield first, future.result(_PATIENCE_S)
    for one, future in sent:
        yield one, future.result(_PATIENCE_S)


def _print_task(found: Found) -> None:
    for error in dict.fromkeys(found.errors):
        print(f"{found.task.name}: {error}")
    if not found.rows:
        return
    alone = statistics.median(row["device_seconds_per_evaluation"] for row in found.rows)
    total = statistics.median(row["seconds_per_evaluation"] for row in found.rows)
    print(
        f"{found.task.name}: {found.rows[-1]['reference_ms'][0]:.4g} ms, {found.excluded} of "
        f"{len(found.rows)} exclude 1.0, half-width median "
        f"{statistics.median(found.widths):.2%}, worst {max(found.widths):.2%}, {alone:.1f} s "
        f"alone on the GPU of {total:.1f} s with waiting",
        flush=True,
    )


def _print_all(found: Sequence[Found], asked: int, seconds: float) -> None:
    widths = [width for one in found for width in one.widths]
    if not widths:
        print("A/A: no run came to an end")
        return
    complete = [one for one in found if statistics.median(one.widths or [1.0]) <= _TARGET]
    print(
        f"A/A: {sum(one.excluded for one in found)} of {len(widths)} intervals exclude 1.0; "
        f"half-width median {statistics.median(widths):.2%}, {sum(w <= _TARGET for w in widths)} "
        f"of {len(widths)} within 1 %, of {len(complete)} of {asked} tasks the median is; "
        f"{seconds:.0f} s, {seconds / len(widths):.1f} s a run"
    )
