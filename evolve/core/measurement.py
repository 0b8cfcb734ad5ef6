"""Numbers with their spread."""

import math
from dataclasses import dataclass


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
