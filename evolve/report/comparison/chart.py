"""A comparison's charts: one for every axis, a line with its band for every method."""

from collections.abc import Sequence

from evolve.report.charts import Chart, Line, Scale, Tick, round_step
from evolve.report.comparison.curves import AXES, Group, Spread

TITLES = {
    "evaluations": "full evaluations",
    "proposals": "proposals",
    "tokens": "model tokens",
    "wall_time_s": "search time",
}
STYLES = 8  # colours, after which lines are dashed


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
    values = [value for step in seen for value in (step.low, step.value, step.high) if value]
    return [
        _chart(axis, groups, stairs[axis], Scale.around(min(values), max(values), 0.0, ends[axis]))
        for axis in AXES
        if min(group.extent(axis) for group in groups) > 0
    ]


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
            path=scale.staircase([(place, step.value or scale.low) for place, step in steps]),
            band=_band(steps, scale) if len(group.curves) > 1 else "",
        )
        for number, (group, steps) in enumerate(zip(groups, stairs, strict=True))
    ]
    return chart(TITLES[axis], axis, lines, scale)


def chart(title: str, axis: str, lines: list[Line], scale: Scale) -> Chart:
    """Lines with the axes of their scale."""
    return Chart(
        title=title,
        lines=lines,
        x_ticks=_x_ticks(axis, scale),
        y_ticks=scale.y_ticks(),
        one=scale.one,
    )


def _band(steps: Sequence[tuple[float, Spread]], scale: Scale) -> str:
    """Between the intervals' ends; down to the lower edge while a seed has no correct program."""
    return scale.band(
        [(place, step.high or scale.low) for place, step in steps],
        [(place, step.low or scale.low) for place, step in steps],
    )


def _x_ticks(axis: str, scale: Scale) -> list[Tick]:
    """About five round numbers; of seconds, minutes or hours if the axis is time."""
    name, unit = _unit(scale.last) if axis == "wall_time_s" else ("", 1.0)
    step = round_step(scale.last / unit / 5)
    count = int(scale.last / unit / step + 1e-9) + 1
    return scale.x_ticks([number * step for number in range(count)], unit, name)


def _unit(seconds: float) -> tuple[str, float]:
    return next(
        ((name, unit) for name, unit in ((" h", 3600.0), (" min", 60.0)) if seconds > 3 * unit),
        (" s", 1.0),
    )
