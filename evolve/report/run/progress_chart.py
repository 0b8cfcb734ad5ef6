"""The progress curve: best so far over full evaluations, on a log scale."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import NOT_SEARCHED, Step
from evolve.core.measurement import Ratio
from evolve.report.charts import Scale, Tick, round_step
from evolve.report.lineage import speedup
from evolve.report.text import ratio_text, span_text

Item = TypeVar("Item")

MAX_DOTS = 1200
DEPTH = 40.0  # how far below the best the axis reaches; slower dots stand on its lower edge


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
    one: float | None


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
    """The curve, or None if nothing has been timed."""
    points, failed, total = _points(steps, baseline)
    searched = [point for point in points if not point.verifies]
    verified = [point for point in points if point.verifies]
    if not searched:
        return None
    best = _best_so_far(searched)
    scale = _scale([point.ratio for point in points], total)
    dots = [_dot(point, scale) for point in searched]
    shown = _thinned(dots)
    return ProgressChart(
        evaluations=total,
        improvements=len(best) - 1,
        last_improvement=best[-1].number,
        line=scale.staircase(_bounds(best, total, "value")),
        band=scale.band(_bounds(best, total, "high"), _bounds(best, total, "low")),
        failed="".join(f"M{scale.x(number):.4g} 0V1" for number in _thinned(failed)),
        failures=len(failed),
        whiskers="".join(_whisker(point, scale) for point in verified),
        verified=[_dot(point, scale) for point in verified],
        dots=shown,
        dots_left_out=len(dots) - len(shown),
        below_axis=sum(1 for point in searched if point.ratio.value < scale.low),
        x_ticks=scale.x_ticks(_numbers(total)),
        y_ticks=scale.y_ticks(),
        one=scale.one,
    )


def _points(steps: Sequence[Step], baseline: str) -> tuple[list[_Point], list[int], int]:
    """Timed evaluations, the numbers of those without a time, and how many there were.

    Verification repeats an evaluation, so it stands at the number of the last one before it.
    """
    points: list[_Point] = []
    failed: list[int] = []
    total = 0
    for step in steps:
        if step.status in (None, Status.INFRA) or step.operator in NOT_SEARCHED:
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


def _scale(ratios: Sequence[Ratio], total: int) -> Scale:
    """Each evaluation has a column, and stands in the middle of it."""
    top = max(max(ratio.high for ratio in ratios), 1.0)
    bottom = min(1.0, max(min(ratio.low for ratio in ratios), top / DEPTH))
    return Scale.around(bottom, top, 0.5, total + 0.5)


def _dot(point: _Point, scale: Scale) -> Dot:
    label = (
        f"#{point.step.sequence} {point.step.operator}: {ratio_text(point.ratio.value)} "
        f"({span_text(point.ratio)})"
    )
    return Dot(round(scale.x(point.number), 1), round(scale.y(point.ratio.value), 1), label)


def _whisker(point: _Point, scale: Scale) -> str:
    x = scale.x(point.number)
    return f"M{x:.1f} {scale.y(point.ratio.low):.1f}V{scale.y(point.ratio.high):.1f}"


def _thinned(items: Sequence[Item]) -> list[Item]:
    """At most MAX_DOTS of them, evenly taken."""
    if len(items) <= MAX_DOTS:
        return list(items)
    return [items[index * len(items) // MAX_DOTS] for index in range(MAX_DOTS)]


def _bounds(best: Sequence[_Point], total: int, bound: str) -> list[tuple[float, float]]:
    """One bound of each new best by its number, up to the right edge."""
    found = [(float(point.number), getattr(point.ratio, bound)) for point in best]
    return [*found, (total + 0.5, found[-1][1])]


def _numbers(total: int) -> list[float]:
    """The first evaluation, and about five round numbers of them."""
    step = int(round_step(max(total / 5, 1)))
    return [1, *range(step if step > 1 else 2, total + 1, step)]
