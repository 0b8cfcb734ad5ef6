"""All suites of a database on one page, and for each suite its benches beside one another.

A bench is what one `evolve bench` did: the runs of a suite's tasks whose names end alike.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from evolve import __version__
from evolve.core.errors import UsageError
from evolve.core.run_store import RunStore
from evolve.report.comparison.compare import STYLES
from evolve.report.run.html import page_environment, styles
from evolve.report.suite.figures import figures, geometric_mean
from evolve.report.suite.native import heading_of, scores_of
from evolve.report.suite.results import EAGER, MIXED, SuiteTask, TaskResult, read_result
from evolve.report.text import ratio_text, span_text, write_text
from evolve.store import RunRow

HEADER = ("SUITE", "BENCH", "COMMIT", "ENDED", "CORRECT", "GEOMEAN", "SCORES")
VERSUS = (
    "SUITE",
    "BENCH",
    "AGAINST",
    "IN BOTH",
    "FASTER",
    "SLOWER",
    "EVEN",
    "WON",
    "LOST",
    "RATIO",
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The results of a bench; `commits` are those of the suite's checkout."""

    suite: str
    name: str
    commits: tuple[str, ...]
    results: tuple[TaskResult, ...]


def read_benches(store: RunStore) -> list[Bench]:
    """All benches of a database, by suite, each suite's in the order in which they began.

    Raises:
        UsageError: it has none.
    """
    found: dict[tuple[str, str], list[RunRow]] = {}
    for run in sorted(store.runs(), key=lambda run: run.created):
        if of := run.config.get("suite"):
            found.setdefault((of["name"], _bench_of(run, of["name"])), []).append(run)
    if not found:
        raise UsageError(f"--suites: {store.location} has no run of `evolve bench`")
    benches = [_bench(store, suite, name, runs) for (suite, name), runs in found.items()]
    return sorted(benches, key=lambda bench: bench.suite)


def _label_of(run: RunRow) -> str:
    return run.task.name.partition(":")[2] or run.task.name


def _bench_of(run: RunRow, suite: str) -> str:
    return run.name.removeprefix(f"{suite}-{_label_of(run).replace('/', '-')}-")


def _bench(store: RunStore, suite: str, name: str, runs: Sequence[RunRow]) -> Bench:
    commits = dict.fromkeys(run.config["suite"].get("commit") or "-" for run in runs)
    results = [read_result(store, _task(run), run) for run in runs]
    return Bench(suite, name, tuple(commits), tuple(results))


def _task(run: RunRow) -> SuiteTask:
    label = _label_of(run)
    return SuiteTask(run=run.name, label=label, level="", title=label, category=run.task.category)


def bench_rows(benches: Sequence[Bench]) -> list[tuple[str, ...]]:
    """A row for each, under `HEADER`."""
    return [_bench_row(bench) for bench in benches]


def _bench_row(bench: Bench) -> tuple[str, ...]:
    found = figures(bench.results, MIXED, EAGER)
    ended = [result.attempts for result in bench.results if result.ended]
    scores = [f"{score.name} {score.text(ended)}" for score in scores_of(bench.suite)]
    return (
        *(bench.suite, bench.name, ", ".join(commit[:12] for commit in bench.commits)),
        f"{len(ended)} of {len(bench.results)}",
        str(found.correct),
        ratio_text(found.geomean.value) if found.geomean else "-",
        ", ".join(scores),
    )


def comparison_rows(benches: Sequence[Bench]) -> list[tuple[str, ...]]:
    """Each bench against the one before it of its suite, over the tasks that both have ended.

    A speedup of a task is compared indirectly, each over eager in its own run. `WON` are tasks of
    which only the later one has a correct program, `LOST` those of the earlier one.
    """
    return [_versus(old, new) for old, new in pairwise(benches) if old.suite == new.suite]


def _versus(old: Bench, new: Bench) -> tuple[str, ...]:
    before = {result.task.label: result.best for result in old.results if result.ended}
    after = {result.task.label: result.best for result in new.results if result.ended}
    both = [label for label in after if label in before]
    pairs = [(before[label], after[label]) for label in both]
    ratios = [own.ratios[EAGER] / other.ratios[EAGER] for other, own in pairs if own and other]
    faster = sum(ratio.low > 1 for ratio in ratios)
    slower = sum(ratio.high < 1 for ratio in ratios)
    mean = geometric_mean([ratio.value for ratio in ratios])
    return (
        *(new.suite, new.name, old.name, str(len(both))),
        *(str(faster), str(slower), str(len(ratios) - faster - slower)),
        str(sum(own is not None and other is None for other, own in pairs)),
        str(sum(own is None and other is not None for other, own in pairs)),
        f"{ratio_text(mean.value)} ({span_text(mean)})" if mean else "-",
    )


def differences(benches: Sequence[Bench]) -> Iterator[str]:
    """Circumstances in which benches that stand side by side differ, besides their settings."""
    for old, new in pairwise(benches):
        if old.suite != new.suite:
            continue
        for what, values in (
            ("commits of the suite", (old.commits, new.commits)),
            ("devices", (_facts(old, "device"), _facts(new, "device"))),
            ("versions of the evaluator", (_versions(old), _versions(new))),
        ):
            if values[0] != values[1]:
                told = [", ".join(value) or "none" for value in values]
                yield f"{new.suite}: {old.name} and {new.name} differ in {what}: {'; '.join(told)}"


def _facts(bench: Bench, name: str) -> tuple[str, ...]:
    found = {result.environment.get(name, "") for result in bench.results}
    return tuple(sorted(found - {""}))


def _versions(bench: Bench) -> tuple[str, ...]:
    return tuple(sorted({result.evaluator_version for result in bench.results} - {""}))


def write_overview(benches: Sequence[Bench], path: Path) -> Path:
    """Write the page.

    Raises:
        UsageError: the path cannot be written.
    """
    template = page_environment().get_template("suites.html.j2")
    suites = dict.fromkeys(bench.suite for bench in benches)
    page = template.render(
        version=__version__,
        style=styles(*STYLES),
        header=HEADER,
        benches=bench_rows(benches),
        versus=VERSUS,
        comparisons=comparison_rows(benches),
        differences=list(differences(benches)),
        meanings=[(suite, heading_of(suite), scores_of(suite)) for suite in suites],
    )
    return write_text(path, page)
