"""How far a verdict lies above what there was."""

import math

from evolve.core.measurement import Interval

BASELINE = Interval(0.0, 0.0, 0.0)
"""The fitness of the baseline itself, what counts if there is no other program."""


def rise(fitness: Interval, reference: Interval) -> float:
    """The part of a gain that the intervals of both sides allow to believe, in log speedup."""
    spread = math.hypot(fitness.value - fitness.low, reference.high - reference.value)
    return max(fitness.value - reference.value - spread, 0.0)
