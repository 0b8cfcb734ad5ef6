"""Which operator is asked next."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.protocols import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """An operator with its share of the asks; an infinite weight is asked before all others."""

    operator: Operator
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise UsageError(
                f"operators.*.weight must be above 0, got {self.weight}; "
                "set the operator to null to leave it out"
            )


def order(operators: Mapping[str, Scheduled], rng: Callable[[str], random.Random]) -> list[str]:
    """All operator names in the order of asking: a weighted draw without replacement.

    Exponential clocks (Efraimidis and Spirakis 2006): the name with the smallest clock is first
    with probability proportional to its weight. Each name draws from a generator of its own, so
    that the order in which the operators are written down does not matter.
    """

    def clock(name: str) -> float:
        weight = operators[name].weight
        draw = rng(name).random()
        return -1.0 if math.isinf(weight) else -math.log1p(-draw) / weight

    return sorted(sorted(operators), key=clock)
