"""The scores that a suite itself reports, by its own formula, of the programs of a search.

They are over all tasks whose search has ended, weak ones included, for the suites do not look for
such. A program counts if it is right for the judge and for the suite's own rule. Times are those of
this machine: where a suite divides by recorded times of another machine, the reference's time here
stands in their place.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from evolve.report.suite.attempts import Attempt, Attempts
from evolve.report.suite.figures import categories, geometric_mean
from evolve.report.suite.results import TaskResult

_NO_DATA = "-"
_ITERATIONS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_COMPILES, _RIGHT, _PER_SPEEDUP = 20.0, 100.0, 100.0  # points of AgentKernelArena
Tasks = Sequence[Attempts]


@dataclass(frozen=True, slots=True)
class Score:
    """One column of a suite's own table; `meaning` is the definition of its `term`."""

    name: str
    meaning: str
    value: Callable[[Tasks], float | None]
    is_share: bool = False
    family: str = ""

    @property
    def term(self) -> str:
        """The name that is defined: of columns that differ in a number, the common one."""
        return self.family or self.name

    def text(self, tasks: Tasks) -> str:
        found = self.value(tasks) if tasks else None
        if found is None:
            return _NO_DATA
        return f"{100 * found:.1f} %" if self.is_share else f"{found:.3g}"


def _share(of: Callable[[Attempts], bool]) -> Callable[[Tasks], float]:
    return lambda tasks: sum(map(of, tasks)) / len(tasks)


def _fast(p: float) -> Score:
    return Score(
        f"fast_{p:g}",
        "share of tasks with a right program and a speedup above p",
        _share(lambda task: task.speedup is not None and task.speedup > p),
        is_share=True,
        family="fast_p",
    )


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _mean_kept(low: float, high: float) -> Callable[[Tasks], float | None]:
    return lambda tasks: _mean([t.speedup for t in tasks if t.speedup and low < t.speedup < high])


def _over_workloads(tasks: Tasks) -> float | None:
    return _mean([statistics.fmean(t.speedups.values()) for t in tasks if t.speedups])


def _light_score(task: Attempts) -> float:
    """SOL-ExecBench's score, of a task: 0.5 at the baseline's time, 1 at the speed of light."""
    scores = [
        _one_light_score(task.speedups.get(case, 0.0), share) for case, share in task.shares.items()
    ]
    return statistics.fmean(scores) if scores else 0.0


def _one_light_score(speedup: float, share: float) -> float:
    """Of the baseline's time and that at the speed of light, both over the candidate's."""
    if share >= 1:
        return 1.0
    return 1 / (1 + (1 - share) / (speedup - share)) if speedup > share else 0.0


def _peak(task: Attempts) -> float:
    shares = [share for share in task.shares.values() if share > 0]
    return math.exp(statistics.fmean(map(math.log, shares))) if shares else 0.0


def _geometric(tasks: Tasks) -> float | None:
    found = geometric_mean([task.speedup or 1.0 for task in tasks])
    return found.value if found else None


def _points(task: Attempts) -> float:
    if not task.passes:
        return _COMPILES * task.ran
    return _COMPILES + _RIGHT + _PER_SPEEDUP * (task.speedup or 0.0)


def _mean_of(value: Callable[[Attempts], float]) -> Callable[[Tasks], float | None]:
    return lambda tasks: _mean([value(task) for task in tasks])


_CORRECT = Score(
    "correct", "share of tasks with a right program", _share(lambda t: t.passes), is_share=True
)
_CALLS = Score(
    "call accuracy", "share of tasks with a program that runs", _share(lambda t: t.ran), True
)
_EXECUTES = Score("execution accuracy", _CORRECT.meaning, _CORRECT.value, is_share=True)
_USUAL = (_CORRECT, _fast(0.5), _fast(0.8), _fast(1), _fast(1.5), _fast(2))
_OF_SUITES: dict[str, tuple[Score, ...]] = {
    "agent_kernel_arena": (
        Score(
            "points", "20 if it runs, 100 if it is right, 100 times the speedup", _mean_of(_points)
        ),
    ),
    "atrex": (
        _CORRECT,
        Score(
            "SOL efficiency",
            "mean share of the speed of light, estimated here; not weighted by importance",
            _mean_of(_peak),
            is_share=True,
        ),
    ),
    "backendbench": (
        _CORRECT,
        Score("performance", "geometric mean of speedups, 1 for a failure", _geometric),
    ),
    "flashinfer_bench": (
        _CORRECT,
        Score("speedup", "mean over workloads, then over right definitions", _over_workloads),
        _fast(1),
    ),
    "kernelbench": _USUAL,
    "kernelbench_hard": (
        _CORRECT,
        Score(
            "peak fraction",
            "geometric mean over shapes of the share of the speed of light, estimated here",
            _mean_of(_peak),
            is_share=True,
        ),
    ),
    "kernelbench_x": (
        *(_CALLS, _EXECUTES),
        Score("speedup", "mean of those above 0.01", _mean_kept(0.01, math.inf)),
    ),
    "multikernelbench": (
        Score("compiles", _CALLS.meaning, _CALLS.value, is_share=True),
        *(_CORRECT, _fast(1)),
    ),
    "sol_execbench": (
        _CORRECT,
        Score(
            "score",
            "mean of 1 / (1 + (T - L) / (B - L)), 0 for a failure; L the speed of light as "
            "estimated here, B the reference's time",
            _mean_of(_light_score),
        ),
    ),
    "tritonbench_g": (
        *(_CALLS, _EXECUTES),
        Score("speedup", "mean of those below 10", _mean_kept(0.0, 10.0)),
    ),
    "tritonbench_t": (
        *(_CALLS, _EXECUTES),
        Score("speedup", "mean of those between 0.1 and 10", _mean_kept(0.1, 10.0)),
    ),
}


def scores_of(suite: str) -> tuple[Score, ...]:
    """The columns that a suite reports; those of KernelBench for one that is not known here."""
    return _OF_SUITES.get(suite, _USUAL)


def heading_of(suite: str) -> str:
    """Whose scores `scores_of` gives, in words."""
    return f"As {suite} scores it" if suite in _OF_SUITES else "By KernelBench's scores"


def native_rows(suite: str, results: Sequence[TaskResult]) -> list[tuple[str, ...]]:
    """Rows of the suite's own scores: all tasks, then each level and each category of several."""
    ended = [result for result in results if result.ended]
    levels: dict[str, list[TaskResult]] = {}
    for result in ended:
        levels.setdefault(result.task.level, []).append(result)
    groups = [("all", ended)]
    for kind, found in (("level", sorted(levels.items())), ("", categories(ended))):
        if len(found) > 1:
            groups += [(f"{kind} {name}".strip(), members) for name, members in found]
    return [(name, str(len(members)), *_texts(suite, members)) for name, members in groups]


def _texts(suite: str, results: Sequence[TaskResult]) -> Iterator[str]:
    tasks = [result.attempts for result in results]
    return (score.text(tasks) for score in scores_of(suite))


def iteration_rows(results: Sequence[TaskResult]) -> list[tuple[str, ...]]:
    """After so many judged programs of each task: shares that run and are right, best speedup.

    The speedup is a geometric mean over all tasks, 1 for those without a right program.
    """
    tried = [result.attempts.tried for result in results if result.ended]
    most = max(map(len, tried), default=0)
    counts = [*(one for one in _ITERATIONS if one < most), *([most] if most else [])]
    return [(str(count), *_iteration([some[:count] for some in tried])) for count in counts]


def _iteration(begun: Sequence[Sequence[Attempt]]) -> tuple[str, str, str]:
    ran = sum(any(one.ran for one in some) for some in begun)
    right = sum(any(one.right for one in some) for some in begun)
    bests = [max((one.speedup or 1.0 for one in some if one.right), default=1.0) for some in begun]
    mean = geometric_mean(bests)
    of_all = 100 / len(begun)
    speed = f"{mean.value:.3g}" if mean else _NO_DATA
    return f"{of_all * ran:.1f} %", f"{of_all * right:.1f} %", speed


def rescue_text(results: Sequence[TaskResult]) -> str:
    """How many tasks were right at first, became right later, and never were."""
    tried = [result.attempts.tried for result in results if result.ended and result.attempts.tried]
    first = sum(some[0].right for some in tried)
    later = sum(not some[0].right and any(one.right for one in some) for some in tried)
    left = len(tried) - first - later
    return f"{first} right at the first program, {later} rescued later, {left} persistent failures"
