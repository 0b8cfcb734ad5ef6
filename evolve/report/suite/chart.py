"""Best-so-far over a suite: the geometric mean of the results that searches would return."""

import math
from collections.abc import Sequence

from evolve.report.charts import Chart, Line, Scale
from evolve.report.comparison.chart import TITLES, chart
from evolve.report.comparison.curves import Curve
from evolve.report.suite.results import TaskResult

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
    scale = Scale.around(min(values), max(values), 0.0, end)
    line = Line(style="line-0", label="", path=scale.staircase(steps), band="")
    return chart(f"{TITLES[axis]} of each task", axis, [line], scale)


def _mean_at(curves: Sequence[Curve], axis: str, place: float) -> float:
    """Over all tasks; 1 without a correct program yet: the reference is kept."""
    logs = [math.log(curve.at(axis, place) or 1.0) for curve in curves]
    return math.exp(math.fsum(logs) / len(logs))
