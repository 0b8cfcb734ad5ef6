"""Best-so-far over a suite: the geometric mean of the results that searches would return."""

import math
from collections.abc import Sequence

from evolve.report.comparison.chart import TITLES, Chart, Line, Scale, staircase_path, x_ticks
from evolve.report.comparison.curves import Curve
from evolve.report.run.progress_chart import SIDE, Tick, ratio_ticks
from evolve.report.suite.results import TaskResult
from evolve.report.text import TIMES

AXES = ("evaluations", "wall_time_s")
_PLACES = 200  # of a curve; between them nothing is drawn


def suite_charts(results: Sequence[TaskResult]) -> list[Chart]:
    """A chart over evaluations and one over search time, each for one task; none without any."""
    curves = [each.curve for each in results if each.ended and each.curve is not None]
    charts = [_chart(axis, curves) for axis in AXES]
    return [chart for chart in charts if chart is not None]


def _chart(axis: str, curves: Sequence[Curve]) -> Chart | None:
    places = sorted({getattr(point.spent, axis) for curve in curves for point in curve.points})
    if not places:
        return None
    chosen = places[:: max(len(places) // _PLACES, 1)]
    end = max(places[-1], max(getattr(curve.total, axis) for curve in curves)) or 1.0
    steps = [(place, _mean_at(curves, axis, place)) for place in {*chosen, places[-1]}]
    steps = [(0.0, 1.0), *sorted(steps), (end, _mean_at(curves, axis, end))]
    values = [value for _, value in steps]
    margin = max((max(values) / min(values)) ** 0.06, 1.02)
    scale = Scale(min(values) / margin, max(values) * margin, end)
    line = Line(style="line-0", label="", path=staircase_path(steps, scale), band="")
    return Chart(
        title=f"{TITLES[axis]} of each task",
        lines=[line],
        x_ticks=x_ticks(axis, scale),
        y_ticks=[
            Tick(f"{tick:g}{TIMES}", scale.y(tick) / SIDE * 100)
            for tick in ratio_ticks(scale.low, scale.high)
        ],
        one=scale.y(1.0),
    )


def _mean_at(curves: Sequence[Curve], axis: str, place: float) -> float:
    """Over all tasks; 1 without a correct program yet: the reference is kept."""
    logs = [math.log(curve.at(axis, place) or 1.0) for curve in curves]
    return math.exp(math.fsum(logs) / len(logs))
