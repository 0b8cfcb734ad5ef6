"""The parts that all charts of reports share: scales, axes and paths.

Coordinates are in a square of 1000 x 1000 that the page stretches to its width. Words stand
outside the drawing, placed by percentages, so that they stay readable on a phone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from evolve.report.text import TIMES

SIDE = 1000.0

_RATIOS = (
    tuple(mantissa * 10.0**power for power in range(-3, 5) for mantissa in (1, 2, 5)),
    tuple(m * 10.0**power for power in range(-3, 5) for m in (1, 1.5, 2, 3, 4, 5, 6, 8)),
)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Tick:
    """A labelled place on an axis; `place` in percent from the left or the top."""

    label: str
    place: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One method in a chart; `path` and `band` are SVG path data."""

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
    """Speedups from `low` to `high`, logarithmic, and numbers from `first` to `last`."""

    low: float
    high: float
    first: float
    last: float

    @classmethod
    def around(cls, low: float, high: float, first: float, last: float) -> Self:
        """With a margin below and above the speedups."""
        margin = max((high / low) ** 0.06, 1.02)
        return cls(low / margin, high * margin, first, last)

    @property
    def one(self) -> float | None:
        """The height of no gain, None if it is outside."""
        return self.y(1.0) if self.low <= 1.0 <= self.high else None

    def x(self, number: float) -> float:
        return SIDE * (number - self.first) / (self.last - self.first)

    def y(self, ratio: float) -> float:
        """Speedups outside the scale are on its edge."""
        share = math.log(ratio / self.low) / math.log(self.high / self.low)
        return SIDE * (1 - min(max(share, 0.0), 1.0))

    def x_ticks(self, numbers: Sequence[float], unit: float = 1.0, name: str = "") -> list[Tick]:
        """Labels at numbers of a unit, which `name` follows."""
        return [
            Tick(f"{round(number, 9):,g}{name}", self.x(number * unit) / SIDE * 100)
            for number in numbers
        ]

    def y_ticks(self) -> list[Tick]:
        """Labels at round speedups."""
        ticks = ratio_ticks(self.low, self.high)
        return [Tick(f"{tick:g}{TIMES}", self.y(tick) / SIDE * 100) for tick in ticks]

    def staircase(self, points: Points) -> str:
        """Speedups at numbers, each of which holds until the next, as SVG path data."""
        return _path(self._corners(points))

    def band(self, upper: Points, lower: Points) -> str:
        """The area between two staircases as SVG path data."""
        return _path([*self._corners(upper), *self._corners(lower)[::-1]]) + "Z" if upper else ""

    def _corners(self, points: Points) -> list[tuple[float, float]]:
        corners: list[tuple[float, float]] = []
        for number, ratio in points:
            x, y = self.x(number), self.y(ratio)
            if corners:
                corners.append((x, corners[-1][1]))
            corners.append((x, y))
        return corners


def _path(corners: Points) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) if corners else ""


def round_step(rough: float) -> float:
    """The smallest of 1, 2, 5, 10, ... times a power of ten that is no less.

    >>> round_step(0.3), round_step(7.0), round_step(20.0)
    (0.5, 10.0, 20.0)
    """
    power = 10.0 ** math.floor(math.log10(rough))
    return next((m * power for m in (1, 2, 5) if m * power >= rough), 10 * power)


def ratio_ticks(low: float, high: float) -> list[float]:
    """Four to nine round speedups between two others, for a log scale."""
    for ticks in _RATIOS:
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 4:
            break
    else:
        step = round_step((high - low) / 10)
        numbers = range(math.ceil(low / step), math.floor(high / step) + 1)
        inside = [round(number * step, 9) for number in numbers]
    while len(inside) > 9:
        inside = [tick for index, tick in enumerate(inside) if index % 2 == 0 or tick == 1.0]
    return inside
