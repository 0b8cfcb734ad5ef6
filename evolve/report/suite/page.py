"""A suite's report: one offline page, a table for other tools, and a few lines for the terminal."""

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve import __version__
from evolve.report.comparison.compare import STYLES
from evolve.report.run.html import page_environment, styles
from evolve.report.suite.chart import suite_charts
from evolve.report.suite.figures import (
    COLUMNS,
    MIN_FOR_INTERVAL,
    THRESHOLDS,
    Figures,
    baselines_of,
    categories,
    figures,
    groups,
)
from evolve.report.suite.native import (
    heading_of,
    iteration_rows,
    native_rows,
    rescue_text,
    scores_of,
)
from evolve.report.suite.results import EAGER, MIXED, Found, TaskResult
from evolve.report.text import (
    baseline_name,
    count_text,
    duration_text,
    ratio_text,
    span_text,
    time_text,
    write_text,
)

HEADER = ("TASKS", "PROGRAMS", "AGAINST", "CORRECT", "GEOMEAN", "OVER ALL", "MEDIAN", "OF LIGHT")
FAST = tuple(f"FAST_{p:g}" for p in THRESHOLDS)


def write_suite(
    name: str, suite: str, results: Sequence[TaskResult], page: Path, table: Path
) -> None:
    """Write the page and the table.

    Args:
        name: of the bench.
        suite: whose own scores are shown.
        results: of its tasks.
        page: path of the HTML file.
        table: path of the CSV file.

    Raises:
        UsageError: a path cannot be written.
    """
    write_text(page, render_suite(name, suite, results))
    write_text(table, suite_csv(results))


def suite_csv(results: Sequence[TaskResult]) -> str:
    """A row for each task and kind of program, with why there is no custom one."""
    baselines = baselines_of(results)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"{name}_{part}" for name in baselines for part in ("ms", "speedup", "low", "high")]
    writer.writerow(
        (
            *("task", "title", "level", "category", "run", "state", "program", "step", "measured"),
            *("candidate_ms", "candidate_ms_low", "candidate_ms_high", *columns),
            *("speed_of_light", "weak", "reason"),
            *("evaluations", "device_time_s", "wall_time_s", "device", "judge", "begun"),
        )
    )
    for result in results:
        found = [each for each in (result.custom, result.mixed) if each is not None]
        writer.writerows(_row(result, each, baselines) for each in found or (None,))
    return text.getvalue()


def _row(result: TaskResult, found: Found | None, baselines: Sequence[str]) -> list[object]:
    task, run = result.task, result.run
    state = run.state if run else "not begun"
    row: list[object] = [task.label, task.title, task.level, task.category, task.run, state]
    if found is None:
        row += ["none"] + [""] * (6 + 4 * len(baselines))
    else:
        time = found.times_ms.get("candidate")
        row += [found.kind, found.sequence, measured_text(found)]
        row += time.to_json() if time else [""] * 3
        for name in baselines:
            ratio = found.ratios.get(name)
            row += [_ms(found, name), *(ratio.to_json() if ratio else ("", "", ""))]
        row.append("" if found.speed_of_light is None else found.speed_of_light)
    return [
        *(*row, result.weak, result.reason, result.evaluations),
        *(round(result.device_time_s, 3), round(result.wall_time_s, 3)),
        *(result.environment.get("device", ""), result.evaluator_version),
        run.created if run else "",
    ]


def _ms(found: Found, side: str) -> object:
    return found.times_ms[side].value if side in found.times_ms else ""


def measured_text(found: Found) -> str:
    """How sure the figures of a program are, in a word."""
    if found.verified:
        return "verified"
    return "measured again" if found.final else "by the search"


def figure_rows(results: Sequence[TaskResult]) -> Iterator[tuple[str, ...]]:
    """Figures by group, column and baseline, as text under `HEADER` and `FAST` and amsr."""
    baselines = baselines_of(results)
    for group, members in groups(results):
        for column in COLUMNS:
            for baseline in baselines:
                found = figures(members, column, baseline)
                if found.tasks:
                    yield _figure_row(group, found)


def _figure_row(group: str, found: Figures) -> tuple[str, ...]:
    return (
        group,
        found.column,
        found.baseline,
        f"{found.correct} of {found.tasks}" + (f" (+{found.untimed})" if found.untimed else ""),
        _mean_text(found),
        ratio_text(found.geomean_all) if found.geomean_all else "-",
        ratio_text(found.median) if found.median else "-",
        "-" if found.speed_of_light is None else f"{100 * found.speed_of_light:.0f} %",
        *(f"{100 * found.fast[p] / found.tasks:.0f} %" for p in THRESHOLDS),
    )


def _mean_text(found: Figures) -> str:
    """The geometric mean, with its interval if there are tasks enough for one."""
    mean = found.geomean
    if mean is None:
        return "-"
    span = f" ({span_text(mean)})" if found.correct >= MIN_FOR_INTERVAL else ""
    return ratio_text(mean.value) + span


def spent_line(results: Sequence[TaskResult]) -> str:
    """The use of all runs together; concurrent searches count each."""
    evaluations = sum(result.evaluations for result in results)
    search_s = sum(result.wall_time_s for result in results)
    device_s = sum(result.device_time_s for result in results)
    return (
        f"{count_text(evaluations, 'full evaluation')}, {duration_text(search_s)} of search over "
        f"all tasks, {duration_text(device_s)} with the device to itself"
    )


def amsr_lines(results: Sequence[TaskResult]) -> list[str]:
    """The published average, for each level, by its own definition."""
    lines = []
    for group, members in groups(results):
        found = figures(members, MIXED, EAGER, weak_counts=True)
        if found.amsr is not None and found.tasks:
            lines.append(f"{group}: amsr {found.amsr:.2f} over {count_text(found.tasks, 'task')}")
    return lines


def caveats(results: Sequence[TaskResult]) -> list[str]:
    """Limits of the figures."""
    found = []
    if left := [result for result in results if not result.ended]:
        found.append(f"{count_text(len(left), 'task')} of {len(results)} left out: not ended.")
    if weak := [result.task.label for result in results if result.weak]:
        found.append(
            f"{count_text(len(weak), 'task')} ({', '.join(weak)}) failed the audit: an answer "
            "that computes nothing passes the check, so no program counts there."
        )
    programs = [each for result in results if result.ended and (each := result.best)]
    if unverified := sum(not each.verified for each in programs):
        found.append(
            f"Programs not verified with ten or more pairs of fresh processes: {unverified} of "
            f"{len(programs)}."
        )
    if len(devices := _devices(results)) > 1:
        found.append(f"Judged on several devices: {', '.join(devices)}.")
    versions = {result.evaluator_version for result in results if result.evaluator_version}
    if len(versions) > 1:
        found.append(
            "Judged by several versions of the evaluator, so that small differences may be the "
            f"judge's: {', '.join(sorted(versions))}."
        )
    return found


def _devices(results: Sequence[TaskResult]) -> list[str]:
    """The judging device, in words; a verdict about the judge itself may not name it."""
    return sorted({device for r in results if (device := r.environment.get("device"))})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """A task in the page's table."""

    label: str
    title: str
    category: str
    run: str
    verdict: str
    outcome: str  # gain | even | slower | none, of the speedup over eager
    time: str
    baselines: list[str]
    speed_of_light: str
    measured: str
    evaluations: str
    took: str


def task_lines(results: Sequence[TaskResult], baselines: Sequence[str]) -> list[TaskLine]:
    """Every task whose run has begun."""
    return [_task_line(result, baselines) for result in results if result.run is not None]


def _task_line(result: TaskResult, baselines: Sequence[str]) -> TaskLine:
    found, task = result.best, result.task
    ratio = found.ratios[EAGER] if found else None
    share = found.speed_of_light if found else None
    time = found.times_ms.get("candidate") if found else None
    return TaskLine(
        label=task.label,
        title=task.title,
        category=task.category,
        run=task.run,
        verdict=(found.kind if found else "none") + (", weak task" if result.weak else ""),
        outcome=_outcome(ratio.low, ratio.high) if ratio else "none",
        time=f"{time_text(time.value)} ± {100 * time.half_width:.1f} %" if time else "",
        baselines=[_speedup(found, name) for name in baselines],
        speed_of_light="" if share is None else f"{100 * share:.0f} %",
        measured=measured_text(found) if found else "",
        evaluations=f"{result.evaluations:,}",
        took=duration_text(result.wall_time_s),
    )


def _outcome(low: float, high: float) -> str:
    return "gain" if low > 1 else "slower" if high < 1 else "even"


def _speedup(found: Found | None, baseline: str) -> str:
    ratio = found.ratios.get(baseline) if found else None
    return f"{ratio_text(ratio.value)} ({span_text(ratio)})" if ratio else "-"


def native_header(suite: str) -> tuple[str, ...]:
    """Names of the columns of `native_rows`."""
    return ("TASKS", "ENDED", *(score.name.upper() for score in scores_of(suite)))


def render_suite(name: str, suite: str, results: Sequence[TaskResult]) -> str:
    """The page as HTML text."""
    baselines = baselines_of(results)
    begun = [result for result in results if result.run is not None]
    return (
        page_environment()
        .get_template("suite.html.j2")
        .render(
            version=__version__,
            style=styles(*STYLES),
            name=name,
            device=next(iter(_devices(results)), "nothing yet"),
            ended=sum(result.ended for result in results),
            tasks=len(results),
            caveats=caveats(results),
            columns=COLUMNS,
            header=[*HEADER, *FAST],
            figures=list(figure_rows(results)),
            amsr=amsr_lines(results),
            native_heading=heading_of(suite),
            native_header=native_header(suite),
            native=native_rows(suite, results),
            scores=scores_of(suite),
            iterations=iteration_rows(results),
            rescued=rescue_text(results),
            baselines=[baseline_name(each) for each in baselines],
            categories=_category_rows(results),
            unsolved=[result for result in begun if result.custom is None],
            lines=task_lines(results, baselines),
            charts=suite_charts(results),
            spent=spent_line(results),
        )
    )


def _category_rows(results: Sequence[TaskResult]) -> list[tuple[str, ...]]:
    ended = [result for result in results if result.ended]
    rows = [(name, figures(members, MIXED, EAGER)) for name, members in categories(ended)]
    return [(name, *_figure_row("", found)[3:]) for name, found in rows if found.tasks]
