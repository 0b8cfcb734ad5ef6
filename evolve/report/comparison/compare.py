"""Several methods on one task, side by side: one offline page, and one table for other tools."""

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evolve import __version__
from evolve.core.errors import UsageError
from evolve.core.records import RECORDED
from evolve.core.run_store import RunStore
from evolve.report.audit import findings_of, weak_task_text
from evolve.report.comparison.chart import charts, style
from evolve.report.comparison.curves import ENOUGH, Curve, Group, Spent, read_curve, wins
from evolve.report.run.html import page_environment, styles
from evolve.report.run.reproduce import config_lines
from evolve.report.text import (
    baseline_name,
    count_text,
    duration_text,
    ratio_text,
    write_text,
)
from evolve.store import RunRow

COLUMNS = (
    *("method", "run", "seed", "evaluations", "proposals", "tokens", "device_time_s"),
    *("wall_time_s", "speedup", "low", "high", "verified"),
)
STYLES = ("report.css", "compare.css")
FEW = 6  # values from which an order statistic covers the median with 95 %
# Tell no methods apart.
_OF_ONE_RUN = ("name", "seed", "on_exists", "store", "opponents", *RECORDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Methods in the requested order, and the properties that all of their runs share."""

    groups: Sequence[Group]
    task: str
    baseline: str
    device_class: str
    evaluator_versions: Sequence[str]

    @property
    def curves(self) -> list[Curve]:
        return [curve for group in self.groups for curve in group.curves]


def gather_comparison(store: RunStore, methods: Mapping[str, Sequence[str]]) -> Comparison:
    """Read runs, the names of each method's under its label.

    Raises:
        UsageError: no such run, or runs whose speedups mean different things.
    """
    rows = {label: [store.run(name) for name in names] for label, names in methods.items()}
    runs = [run for found in rows.values() for run in found]
    _require_same("task", {run.name: run.task.revision for run in runs})
    _require_same("baseline", {run.name: run.baseline for run in runs})
    judges = {run.name: store.judge(run.id) for run in runs if store.progress(run.id).evaluations}
    _require_same("device", {name: device for name, (device, _) in judges.items()})
    return Comparison(
        groups=[
            Group(label=label, curves=[read_curve(store, run) for run in found])
            for label, found in rows.items()
        ],
        task=runs[0].task.name,
        baseline=runs[0].baseline,
        device_class=next((device for device, _ in judges.values()), ""),
        evaluator_versions=sorted({version for _, version in judges.values()}),
    )


def _require_same(what: str, values: Mapping[str, str]) -> None:
    first = next(iter(values), "")
    for name, value in values.items():
        if value != values[first]:
            raise UsageError(
                f"runs {first} and {name} have not the same {what} ({values[first][:24]} and "
                f"{value[:24]}), so that their speedups cannot be compared; name others"
            )


def write_comparison(comparison: Comparison, page: Path, table: Path) -> None:
    """Write the page and the table.

    Raises:
        UsageError: a path cannot be written.
    """
    write_text(page, render_comparison(comparison))
    write_text(table, comparison_csv(comparison))


def comparison_csv(comparison: Comparison) -> str:
    """A row for every change of the result that a run would return, and one for its champion."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for group in comparison.groups:
        for curve in group.curves:
            who = (group.label, curve.run.name, curve.run.seed)
            for point in curve.points:
                bounds = point.best.to_json() if point.best else ("", "", "")
                writer.writerow((*who, *_spent(point.spent), *bounds, 0))
            if curve.champion is not None:
                ratio, verified = curve.champion.ratio, int(curve.champion.verified)
                writer.writerow((*who, *_spent(curve.total), *ratio.to_json(), verified))
    return text.getvalue()


def _spent(spent: Spent) -> tuple[object, ...]:
    return tuple(getattr(spent, name) for name in COLUMNS[3:8])


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodLine:
    """A method's result in words."""

    style: str
    label: str
    seeds: int
    speedup: str
    span: str
    coverage: str
    beats: str
    evaluations: str
    proposals: str
    tokens: str
    time: str


def method_lines(comparison: Comparison) -> list[MethodLine]:
    """The result of each method, in the order of asking."""
    first = comparison.groups[0]
    return [
        _method_line(number, group, None if group is first else first)
        for number, group in enumerate(comparison.groups)
    ]


def _method_line(number: int, group: Group, first: Group | None) -> MethodLine:
    found = group.final
    totals = [curve.total for curve in group.curves]
    several = len(group.curves) > 1
    beats = ""
    if first is not None:
        mine, theirs = [[c.final for c in each.curves] for each in (group, first)]
        beats = f"{wins(mine, theirs):g} of {len(mine) * len(theirs)}"
    return MethodLine(
        style=style(number),
        label=group.label,
        seeds=len(group.curves),
        speedup="none" if found.value is None else ratio_text(found.value),
        span=f"{_bound(found.low)} to {_bound(found.high)}" if several else "",
        coverage=f"{100 * found.coverage:.0f} %" if several else "",
        beats=beats,
        evaluations=_range([total.evaluations for total in totals]),
        proposals=_range([total.proposals for total in totals]),
        tokens=_range([total.tokens for total in totals]),
        time=_range([total.wall_time_s for total in totals], duration_text),
    )


def _bound(value: float | None) -> str:
    return "none" if value is None else ratio_text(value)


def _range(values: Sequence[float], text: Callable[[float], str] = "{:,}".format) -> str:
    low, high = text(min(values)), text(max(values))
    return low if low == high else f"{low} to {high}"


def verdict(comparison: Comparison) -> str:
    """Which method came out ahead, as far as the seeds tell."""
    ranked = sorted(comparison.groups, key=lambda group: -(group.final.value or 0.0))
    best = ranked[0]
    if best.final.value is None:
        return "No method found a strictly correct kernel."
    against = baseline_name(comparison.baseline)
    level = [group for group in ranked if group is best or not _apart(best, group)]
    if len(level) > 1:
        figures = ", ".join(f"{group.label} {_bound(group.final.value)}" for group in level)
        return f"No winner: these seeds do not separate {figures} (speedup over {against})."
    said = f"{best.label} came out highest: {ratio_text(best.final.value)} the speed of {against}"
    said += " in the middle of its seeds." if len(best.curves) > 1 else "."
    if len(ranked) < 2:
        return said
    if best.final.coverage < ENOUGH:
        return f"{said} All of its seeds ended above all seeds of the others."
    return f"{said} Its interval lies above those of all others."


def _apart(best: Group, other: Group) -> bool:
    """Whether the intervals are of several seeds, and do not touch."""
    if min(len(best.curves), len(other.curves)) < 2:
        return False
    return (best.final.low or 0.0) > (other.final.high or 0.0)


def caveats(comparison: Comparison) -> list[str]:
    """Limits of the figures."""
    found = []
    fewest = min(len(group.curves) for group in comparison.groups)
    if fewest < FEW:
        found.append(
            f"{count_text(fewest, 'seed')} a method: an interval is the whole range of the seeds, "
            f"and {FEW} are needed for one of 95 %."
        )
    found += _budget_caveat([curve.run for curve in comparison.curves])
    unfinished = [curve.run.name for curve in comparison.curves if curve.run.state != "finished"]
    if unfinished:
        found.append(f"Not finished, and shown as far as they are: {', '.join(unfinished)}.")
    unverified = [c.run.name for c in comparison.curves if c.champion and not c.champion.verified]
    if unverified:
        found.append(f"The best kernel was not verified in {', '.join(unverified)}.")
    if weak := weak_task_text(findings_of(comparison.curves[0].run.config)):
        found.append(weak)
    if len(comparison.evaluator_versions) > 1:
        found.append(
            "The runs were judged by several versions of the evaluator, so that small differences "
            f"may be the judge's: {', '.join(comparison.evaluator_versions)}."
        )
    return found


def _budget_caveat(runs: Sequence[RunRow]) -> list[str]:
    """That budgets differ, and which run had which."""
    budgets: dict[str, list[str]] = {}
    for run in runs:
        limits = [
            f"{name.partition('.')[2]}={value}"
            for name, value in config_lines(run.config)
            if name.startswith("termination.") and value not in ("None", "{}")
        ]
        budgets.setdefault(" ".join(limits) or "no limit", []).append(run.name)
    if len(budgets) < 2:
        return []
    said = "; ".join(f"{', '.join(names)}: {limits}" for limits, names in budgets.items())
    why = "so that final speedups do not say which method is better"
    return [f"The runs had different budgets, {why}; read the curves at what all spent ({said})."]


def differing_settings(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Settings in which methods differ: the name, and each method's value."""
    configs = [dict(_telling(group.curves[0].run)) for group in comparison.groups]
    names = sorted({name for config in configs for name in config})
    rows = [(name, [config.get(name, "(none)") for config in configs]) for name in names]
    return [(name, values) for name, values in rows if len(set(values)) > 1]


def _telling(run: RunRow) -> Iterator[tuple[str, str]]:
    for name, value in config_lines(run.config):
        if name.partition(".")[0] not in _OF_ONE_RUN:
            yield name, value


def render_comparison(comparison: Comparison) -> str:
    """The page as HTML text."""
    return (
        page_environment()
        .get_template("compare.html.j2")
        .render(
            version=__version__,
            style=styles(*STYLES),
            comparison=comparison,
            baseline=baseline_name(comparison.baseline),
            verdict=verdict(comparison),
            caveats=caveats(comparison),
            methods=method_lines(comparison),
            charts=charts(comparison.groups),
            runs=[_run_line(group, curve) for group in comparison.groups for curve in group.curves],
            settings=differing_settings(comparison),
        )
    )


def _run_line(group: Group, curve: Curve) -> dict[str, str]:
    winner = curve.champion
    return {
        "method": group.label,
        "name": curve.run.name,
        "seed": str(curve.run.seed),
        "speedup": "none" if winner is None else ratio_text(winner.ratio.value),
        "proof": "" if winner is None else "verified" if winner.verified else "not verified",
        "evaluations": f"{curve.total.evaluations:,}",
        "time": duration_text(curve.total.wall_time_s),
        "end": curve.run.reason or curve.run.state,
    }
