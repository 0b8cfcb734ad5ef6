"""Geometry of the progress curve: best so far over full evaluations, on a log scale.

Coordinates are in a square of 1000 x 1000 that the page stretches to its width; words stand
outside the drawing, placed by percentages, so that they stay readable on a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import OPPONENT, Step
from evolve.core.measurement import Ratio
from evolve.report.lineage import speedup
from evolve.report.text import TIMES, ratio_text, span_text

Item = TypeVar("Item")

SIDE = 1000.0
MAX_DOTS = 1200
DEPTH = 40.0  # how far below the best the axis reaches; slower dots stand on its lower edge

_TICKS = (
    tuple(mantissa * 10.0**power for power in range(-3, 5) for mantissa in (1, 2, 5)),
    tuple(m * 10.0**power for power in range(-3, 5) for m in (1, 1.5, 2, 3, 4, 5, 6, 8)),
    tuple(round(0.1 * number, 1) for number in range(1, 100)),
    tuple(round(0.02 * number, 2) for number in range(5, 500)),
)


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis; `place` in percent from the left or the top."""

    label: str
    place: float


@dataclass(frozen=True, slots=True)
class Dot:
    """A labelled point of the drawing."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressChart:
    """`line`, `band`, `failed` and `whiskers` are SVG path data."""

    evaluations: int
    improvements: int
    last_improvement: int
    line: str
    band: str
    failed: str
    failures: int
    whiskers: str
    verified: list[Dot]
    dots: list[Dot]
    dots_left_out: int
    below_axis: int
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    one: float


@dataclass(frozen=True, slots=True)
class _Point:
    """A timed evaluation and its place in the order of full evaluations."""

    number: int
    step: Step
    ratio: Ratio

    @property
    def verifies(self) -> bool:
        return self.step.fidelity is Fidelity.VERIFY


def progress_chart(steps: Sequence[Step], baseline: str) -> ProgressChart | None:
    """The curve, or None where nothing has been timed."""
    points, failed, total = _points(steps, baseline)
    searched = [point for point in points if not point.verifies]
    verified = [point for point in points if point.verifies]
    if not searched:
        return None
    best = _best_so_far(searched)
    scale = _Scale.covering([point.ratio for point in points], total)
    dots = [_dot(point, scale) for point in searched]
    shown = _thinned(dots)
    return ProgressChart(
        evaluations=total,
        improvements=len(best) - 1,
        last_improvement=best[-1].number,
        line=_line(best, scale),
        band=_band(best, scale),
        failed="".join(f"M{scale.x(number):.4g} 0V1" for number in _thinned(failed)),
        failures=len(failed),
        whiskers="".join(_whisker(point, scale) for point in verified),
        verified=[_dot(point, scale) for point in verified],
        dots=shown,
        dots_left_out=len(dots) - len(shown),
        below_axis=sum(1 for point in searched if point.ratio.value < scale.low),
        x_ticks=_x_ticks(scale),
        y_ticks=_y_ticks(scale),
        one=scale.y(1.0),
    )


def _points(steps: Sequence[Step], baseline: str) -> tuple[list[_Point], list[int], int]:
    """Timed evaluations, the numbers of those without a time, and how many there were.

    Verification repeats an evaluation, so it stands at the number of the last one before it.
    """
    points: list[_Point] = []
    failed: list[int] = []
    total = 0
    for step in steps:
        if step.status in (None, Status.INFRA) or step.operator == OPPONENT:
            continue
        total += step.fidelity is Fidelity.SEARCH
        ratio = speedup(step, baseline)
        if ratio:
            points.append(_Point(max(total, 1), step, ratio))
        elif step.fidelity is Fidelity.SEARCH:
            failed.append(total)
    return points, failed, total


def _best_so_far(points: Sequence[_Point]) -> list[_Point]:
    best: list[_Point] = []
    for point in points:
        if not best or point.ratio.value > best[-1].ratio.value:
            best.append(point)
    return best


@dataclass(frozen=True, slots=True)
class _Scale:
    low: float
    high: float
    total: int

    @classmethod
    def covering(cls, ratios: Sequence[Ratio], total: int) -> "_Scale":
        top = max(max(ratio.high for ratio in ratios), 1.0)
        bottom = min(1.0, max(min(ratio.low for ratio in ratios), top / DEPTH))
        margin = max((top / bottom) ** 0.06, 1.02)
        return cls(bottom / margin, top * margin, total)

    def x(self, number: float) -> float:
        return SIDE * (number - 0.5) / self.total

    def y(self, ratio: float) -> float:
        share = math.log(max(ratio, self.low) / self.low) / math.log(self.high / self.low)
        return SIDE * (1 - min(share, 1.0))


def _dot(point: _Point, scale: _Scale) -> Dot:
    label = (
        f"#{point.step.sequence} {point.step.operator}: {ratio_text(point.ratio.value)} "
        f"({span_text(point.ratio)})"
    )
    return Dot(round(scale.x(point.number), 1), round(scale.y(point.ratio.value), 1), label)


def _whisker(point: _Point, scale: _Scale) -> str:
    x = scale.x(point.number)
    return f"M{x:.1f} {scale.y(point.ratio.low):.1f}V{scale.y(point.ratio.high):.1f}"


def _thinned(items: Sequence[Item]) -> list[Item]:
    """At most MAX_DOTS of them, evenly taken."""
    if len(items) <= MAX_DOTS:
        return list(items)
    return [items[index * len(items) // MAX_DOTS] for index in range(MAX_DOTS)]


def _corners(best: Sequence[_Point], scale: _Scale, bound: str) -> list[tuple[float, float]]:
    """A staircase through one bound of each new best, up to the right edge."""
    corners: list[tuple[float, float]] = []
    for point in best:
        x, y = scale.x(point.number), scale.y(getattr(point.ratio, bound))
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return [*corners, (SIDE, corners[-1][1])]


def _path(corners: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners)


def _line(best: Sequence[_Point], scale: _Scale) -> str:
    return _path(_corners(best, scale, "value"))


def _band(best: Sequence[_Point], scale: _Scale) -> str:
    upper, lower = _corners(best, scale, "high"), _corners(best, scale, "low")
    return _path([*upper, *lower[::-1]]) + "Z"


def _x_ticks(scale: _Scale) -> list[Tick]:
    rough = scale.total / 5
    unit = 10 ** math.floor(math.log10(max(rough, 1)))
    step = next((m * unit for m in (1, 2, 5) if m * unit >= rough), 10 * unit)
    numbers = [1, *range(step if step > 1 else 2, scale.total + 1, step)]
    return [Tick(f"{number:,}", scale.x(number) / SIDE * 100) for number in numbers]


def _y_ticks(scale: _Scale) -> list[Tick]:
    ticks = ratio_ticks(scale.low, scale.high)
    return [Tick(f"{tick:g}{TIMES}", scale.y(tick) / SIDE * 100) for tick in ticks]


def ratio_ticks(low: float, high: float) -> list[float]:
    """Four to nine round speedups between two others, for a log scale."""
    inside: list[float] = [1.0]
    for ticks in _TICKS:
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 4:
            break
    if len(inside) > 9:
        inside = [tick for index, tick in enumerate(inside) if index % 2 == 0 or tick == 1.0]
    return inside
