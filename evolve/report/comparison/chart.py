"""Geometry of a comparison: one chart for every axis, a line with its band for every method.

Coordinates are in a square of 1000 x 1000 that the page stretches; see `progress_chart`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.report.comparison.curves import AXES, Group, Spread
from evolve.report.run.progress_chart import SIDE, Tick, ratio_ticks
from evolve.report.text import TIMES

TITLES = {
    "evaluations": "full evaluations",
    "proposals": "proposals",
    "tokens": "model tokens",
    "wall_time_s": "search time",
}
STYLES = 8  # colours, after which lines are dashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One method in one chart; `path` and `band` are SVG path data."""

    style: str
    label: str
    path: str
    band: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The methods over one axis; `one` is the height of no gain, None if it is outside."""

    title: str
    lines: list[Line]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    one: float | None


@dataclass(frozen=True, slots=True)
class Scale:
    """Ratios from `low` to `high` and places from 0 to `end`, as coordinates."""

    low: float
    high: float
    end: float

    def x(self, place: float) -> float:
        return SIDE * place / self.end

    def y(self, ratio: float) -> float:
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return SIDE * (1 - min(max(share, 0.0), 1.0))


def style(number: int) -> str:
    """The class of the number-th method's lines, from 0."""
    return f"line-{number % STYLES}" + (" dashed" if number % (2 * STYLES) >= STYLES else "")


def charts(groups: Sequence[Group]) -> list[Chart]:
    """A chart for each axis along which every method has come anywhere, all of one height."""
    stairs = {axis: [list(group.staircase(axis)) for group in groups] for axis in AXES}
    ends = {axis: max(group.extent(axis) for group in groups) for axis in AXES}
    seen = [step for lines in stairs.values() for line in lines for _, step in line]
    if not seen:
        return []
    low, high = _bounds(seen)
    return [
        _chart(axis, groups, stairs[axis], Scale(low, high, ends[axis]))
        for axis in AXES
        if min(group.extent(axis) for group in groups) > 0
    ]


def _bounds(seen: Sequence[Spread]) -> tuple[float, float]:
    """The lowest and the highest speedup to be shown, and a margin."""
    values = [value for step in seen for value in (step.low, step.value, step.high) if value]
    low, high = min(values), max(values)
    margin = max((high / low) ** 0.06, 1.02)
    return low / margin, high * margin


def _chart(
    axis: str,
    groups: Sequence[Group],
    stairs: Sequence[Sequence[tuple[float, Spread]]],
    scale: Scale,
) -> Chart:
    lines = [
        Line(
            style=style(number),
            label=group.label,
            path=_line(steps, scale),
            band=_band(steps, scale) if len(group.curves) > 1 else "",
        )
        for number, (group, steps) in enumerate(zip(groups, stairs, strict=True))
    ]
    return Chart(
        title=TITLES[axis],
        lines=lines,
        x_ticks=x_ticks(axis, scale),
        y_ticks=[
            Tick(f"{tick:g}{TIMES}", scale.y(tick) / SIDE * 100)
            for tick in ratio_ticks(scale.low, scale.high)
        ],
        one=scale.y(1.0) if scale.low <= 1.0 <= scale.high else None,
    )


def _line(steps: Sequence[tuple[float, Spread]], scale: Scale) -> str:
    return staircase_path([(place, step.value) for place, step in steps], scale)


def staircase_path(steps: Sequence[tuple[float, float | None]], scale: Scale) -> str:
    """Values that each hold until the next place, as SVG path data."""
    return _path(_corners(steps, scale))


def _band(steps: Sequence[tuple[float, Spread]], scale: Scale) -> str:
    """Between the intervals' ends; down to the lower edge while a seed has no correct program."""
    upper = _corners([(place, step.high) for place, step in steps], scale)
    lower = _corners([(place, step.low or scale.low) for place, step in steps], scale)
    return _path([*upper, *lower[::-1]]) + "Z" if steps else ""


def _corners(
    steps: Sequence[tuple[float, float | None]], scale: Scale
) -> list[tuple[float, float]]:
    """A staircase: every value holds until the next place."""
    corners: list[tuple[float, float]] = []
    for place, value in steps:
        x, y = scale.x(place), scale.y(value or scale.low)
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) if corners else ""


def x_ticks(axis: str, scale: Scale) -> list[Tick]:
    """About five round numbers; of seconds, minutes or hours if the axis is time."""
    name, unit = _unit(scale.end) if axis == "wall_time_s" else ("", 1.0)
    rough = scale.end / unit / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((m * power for m in (1, 2, 5) if m * power >= rough), 10 * power)
    numbers = [count * step for count in range(int(scale.end / unit / step + 1e-9) + 1)]
    return [
        Tick(f"{round(number, 9):,g}{name}", scale.x(number * unit) / SIDE * 100)
        for number in numbers
    ]


def _unit(seconds: float) -> tuple[str, float]:
    return next(
        ((name, unit) for name, unit in ((" h", 3600.0), (" min", 60.0)) if seconds > 3 * unit),
        (" s", 1.0),
    )
