"""Numbers with their spread."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Z95 = 1.96
"""Half of a 95 % interval in standard deviations."""

HALF_WIDTHS = (0.001, 0.5)
"""Of an interval, relative: the least and the most that may be asked for."""

CLEARLY_SLOWER = 0.9
"""A program known to be less than so many times as fast is not timed on."""

WIDE = 0.05
"""Half-width of an interval from which on short blocks and few pairs of processes will do."""

FAR_WIDTHS = 1.5
"""The half-width that is enough to verify a clear winner, as a multiple of the width wanted."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with the bounds of its 95 % interval, in the unit that its owner names."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"interval needs low <= value <= high, got {self}")

    @property
    def half_width(self) -> float:
        """Half of the interval's width relative to the value."""
        return (self.high - self.low) / (2 * abs(self.value)) if self.value else math.inf

    def excludes(self, number: float) -> bool:
        return not self.low <= number <= self.high

    def to_json(self) -> list[float]:
        return [self.value, self.low, self.high]

    @classmethod
    def from_json(cls, data: list[float]) -> "Interval":
        return cls(*data)


class Ratio(Interval):
    """A speedup: baseline time over candidate time, above 1 is faster. All bounds positive."""

    __slots__ = ()

    def __truediv__(self, other: "Ratio") -> "Ratio":
        """Indirect comparison of two ratios to one baseline; variances of the logs add up."""
        value = math.log(self.value / other.value)
        low = value - math.hypot(
            math.log(self.value / self.low), math.log(other.high / other.value)
        )
        high = value + math.hypot(
            math.log(self.high / self.value), math.log(other.value / other.low)
        )
        return Ratio(math.exp(value), math.exp(low), math.exp(high))

    @property
    def is_gain(self) -> bool:
        """The whole interval lies above 1."""
        return self.low > 1.0

    @classmethod
    def exp(cls, logs: Interval) -> "Ratio":
        """The ratio whose natural logs these are."""
        return cls(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high))

    def log(self) -> Interval:
        """The natural logs of value and bounds."""
        return Interval(math.log(self.value), math.log(self.low), math.log(self.high))


def middle(times: Sequence[float]) -> float:
    """Mean without the quarter at each end: nearly as steady as a mean, in spite of outliers.

    >>> middle([2.0, 1.0, 90.0, 3.0])
    2.5
    """
    left_out = len(times) // 4
    return statistics.fmean(sorted(times)[left_out : len(times) - left_out])


def pooled(estimates: Sequence[Interval]) -> Interval:
    """One estimate from several measurements: the mean weighted by inverse variance.

    If the estimates lie further apart than their own intervals allow for, the interval is
    widened by the Birge ratio sqrt(chi2 / (n - 1)), as the Particle Data Group does (Review of
    Particle Physics, section on statistical procedures). A single estimate stays as it is.
    """
    if len(estimates) == 1:
        return estimates[0]
    deviations = [max((each.high - each.low) / (2 * Z95), 1e-9) for each in estimates]
    weights = [deviation**-2 for deviation in deviations]
    total = math.fsum(weights)
    pairs = list(zip(weights, estimates, strict=True))
    value = math.fsum(weight * each.value for weight, each in pairs) / total
    chi2 = math.fsum(weight * (each.value - value) ** 2 for weight, each in pairs)
    spread = Z95 * math.sqrt(max(chi2 / (len(pairs) - 1), 1.0) / total)
    return Interval(value, value - spread, value + spread)


UNREACHABLE_SPEEDUP = 1e9
"""A target that no speedup reaches, as a number that every JSON reader accepts."""


def missed_target(ratios: Mapping[str, Ratio], target_speedups: Mapping[str, float]) -> str | None:
    """A side against which the speedup is known to be below its target; None if there is none.

    The target of a side that was not measured is not missed.
    """
    missed = (
        side
        for side, target in target_speedups.items()
        if side in ratios and ratios[side].high < target
    )
    return next(missed, None)
