"""How far a verdict lies above what there was."""

import math

from evolve.core.measurement import Interval
from evolve.core.protocols import Elite


def rise(fitness: Interval, reference: Elite | None) -> float:
    """The part of a gain over an elite that the intervals of both allow to believe, in log speedup.

    Over the baseline where there is no elite.
    """
    if reference is None:
        return max(fitness.low, 0.0)
    theirs = reference.fitness
    spread = math.hypot(fitness.value - fitness.low, theirs.high - theirs.value)
    return max(fitness.value - theirs.value - spread, 0.0)
