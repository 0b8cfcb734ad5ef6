"""Figures of a suite as the field reports them over many tasks, each by its stated definition.

A figure is over the tasks whose search has ended. Those without a program that counts are in it: as
not correct, as a speedup of 0 in `fast_p` and `amsr`, as 1 (one keeps the baseline) in the
geometric mean over all. A correct program that was not timed beside a baseline is left out of that
baseline's figures, and counted. A weak task has no program that counts.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.measurement import Z95, Interval, Ratio
from evolve.core.protocols import BASELINES
from evolve.report.suite.results import CUSTOM, EAGER, Found, TaskResult

THRESHOLDS = (0.8, 1.0, 1.2, 1.5, 2.0)
MIN_FOR_INTERVAL = 3
"""Tasks from which the geometric mean has an interval."""
COLUMNS = {
    "custom": "custom kernels only",
    "mixed": "custom kernels, and vendors' calls beside them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One column of programs against one baseline.

    Attributes:
        tasks: whose search has ended and, if they have a correct program, whose time stands
            beside the baseline's.
        correct: of these, with a program that counts.
        untimed: tasks left out since the program was not timed beside the baseline.
        fast: by threshold p, the tasks with a speedup above p.
        geomean: of the speedups of correct programs, with a 95 % interval over tasks as if they
            were drawn from many; None without any.
        geomean_all: the same over all tasks, 1 for those without a program.
        median: speedup over correct programs.
        amsr: mean speedup, every one below 1 and every failure as 0 (Kernel-Smith's definition,
            where the baseline is eager).
        speed_of_light: median share over correct programs.
    """

    column: str
    baseline: str
    tasks: int
    correct: int
    untimed: int
    fast: dict[float, int]
    geomean: Ratio | None
    geomean_all: float | None
    median: float | None
    amsr: float | None
    speed_of_light: float | None


def figures(
    results: Sequence[TaskResult], column: str, baseline: str, *, weak_counts: bool = False
) -> Figures:
    """The figures of a column over the tasks whose search has ended.

    Args:
        results: of any tasks.
        column: `custom` or `mixed`.
        baseline: of speedups.
        weak_counts: count programs of weak tasks, as evaluators do that do not look for them.
    """
    ended = [result for result in results if result.ended]
    found = [counting(result, column, weak_counts=weak_counts) for result in ended]
    correct = [each for each in found if each is not None]
    timed = [each for each in correct if baseline in each.ratios]
    speedups = [each.ratios[baseline].value for each in timed]
    tasks = len(ended) - (len(correct) - len(timed))
    shares = [each.speed_of_light for each in timed if each.speed_of_light is not None]
    return Figures(
        column=column,
        baseline=baseline,
        tasks=tasks,
        correct=len(timed),
        untimed=len(correct) - len(timed),
        fast={p: sum(speedup > p for speedup in speedups) for p in THRESHOLDS},
        geomean=geometric_mean(speedups),
        geomean_all=_geomean_all(speedups, tasks),
        median=statistics.median(speedups) if speedups else None,
        amsr=sum(speedup for speedup in speedups if speedup >= 1) / tasks if tasks else None,
        speed_of_light=statistics.median(shares) if shares else None,
    )


def counting(result: TaskResult, column: str, *, weak_counts: bool = False) -> Found | None:
    """The program of a task that counts in a column."""
    if result.weak and not weak_counts:
        return None
    return result.custom if column == CUSTOM else result.best


def geometric_mean(speedups: Sequence[float]) -> Ratio | None:
    """The mean log with a normal interval; below `MIN_FOR_INTERVAL` values, their whole range."""
    if not speedups:
        return None
    logs = [math.log(speedup) for speedup in speedups]
    mean = statistics.fmean(logs)
    if len(logs) < MIN_FOR_INTERVAL:
        return Ratio.exp(Interval(mean, min(mean, *logs), max(mean, *logs)))
    half = Z95 * statistics.stdev(logs) / math.sqrt(len(logs))
    return Ratio.exp(Interval(mean, mean - half, mean + half))


def _geomean_all(speedups: Sequence[float], tasks: int) -> float | None:
    if not tasks:
        return None
    return math.exp(math.fsum(map(math.log, speedups)) / tasks)


def groups(results: Sequence[TaskResult]) -> list[tuple[str, list[TaskResult]]]:
    """All tasks, and each level if there are several."""
    levels = sorted({result.task.level for result in results})
    if len(levels) < 2:
        return [(f"level {levels[0]}" if levels and levels[0] else "all", list(results))]
    by_level = [
        (f"level {level}", [result for result in results if result.task.level == level])
        for level in levels
    ]
    return [("all levels", list(results)), *by_level]


def categories(results: Sequence[TaskResult]) -> list[tuple[str, list[TaskResult]]]:
    """Tasks by category, the largest first."""
    by_name: dict[str, list[TaskResult]] = {}
    for result in results:
        by_name.setdefault(result.task.category or "other", []).append(result)
    return sorted(by_name.items(), key=lambda item: (-len(item[1]), item[0]))


def baselines_of(results: Sequence[TaskResult]) -> list[str]:
    """Every baseline that something was timed beside, `eager` first."""
    names = {
        name
        for result in results
        for found in (result.custom, result.mixed)
        if found is not None
        for name in found.ratios
    }
    return [EAGER, *(name for name in BASELINES if name in names)]
