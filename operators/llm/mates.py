"""Which programs go with a parent: those that win where it does not."""

import math
import re
from collections.abc import Mapping

from evolve.core.evaluation import Evaluation
from evolve.core.protocols import Context, Elite

_LOOKED_AT = 16  # of the best peers
_LOG_SLOWEST = math.log(0.5)  # of the parent's speed, for one that is better nowhere
_SURELY = 1.1  # times as fast: a kernel is timed in one call, without an interval
_KERNEL = re.compile(
    r"^kernel '(\w{1,60})': (?:grid [\d x]{1,40}, )?\d+% of the time, ([\d.e+-]+) (ms|us)\b",
    re.MULTILINE,
)


def complementary(context: Context, parent: Elite, count: int) -> list[Elite]:
    """The peers that are most unlike the parent in what they are good at, the best of them first.

    One that is measurably faster in a case counts most, then one that has a faster kernel, then one
    whose descriptors differ more (other kernels, another pattern); equals are in the archive's
    order.
    """
    own = context.facts.evaluation(parent.program)
    rated = []
    for peer in context.peers[:_LOOKED_AT]:
        if peer.program == parent.program:
            continue
        theirs = context.facts.evaluation(peer.program)
        wins, kernels = _wins(theirs, own), len(faster_kernels(theirs, own))
        ratio = peer.fitness.value - parent.fitness.value
        if wins or kernels or ratio >= _LOG_SLOWEST:
            rated.append((-wins, -kernels, -_unlike(peer, parent), peer))
    rated.sort(key=lambda row: row[:3])  # stable: the archive's order decides among equals
    return [row[-1] for row in rated[:count]]


def faster_kernels(
    one: Evaluation | None, other: Evaluation | None
) -> Mapping[str, tuple[float, float]]:
    """Kernels of both that the first has faster, with their times in both, in ms.

    As a profile of one call says: all launches of a kernel together, and surely faster only.
    """
    mine, its = kernel_times(one), kernel_times(other)
    both = {name: (time, its[name]) for name, time in mine.items() if name in its}
    return {name: times for name, times in both.items() if _SURELY * times[0] <= times[1]}


def kernel_times(evaluation: Evaluation | None) -> dict[str, float]:
    """The time of each kernel by name, in ms; empty where the judge does not say it."""
    found: dict[str, float] = {}
    for name, time, unit in _KERNEL.findall("" if evaluation is None else evaluation.feedback):
        found[name] = found.get(name, 0.0) + float(time) * (1.0 if unit == "ms" else 1e-3)
    return found


def _wins(one: Evaluation | None, other: Evaluation | None) -> int:
    """In how many cases the first is faster, by intervals that do not overlap."""
    if one is None or other is None:
        return 0
    times = {case.name: case.times_ms.get("candidate") for case in other.cases}
    return sum(
        (mine := case.times_ms.get("candidate")) is not None
        and (its := times.get(case.name)) is not None
        and mine.high < its.low
        for case in one.cases
    )


def _unlike(one: Elite, other: Elite) -> int:
    names = {*one.descriptors, *other.descriptors}
    return sum(one.descriptors.get(name) != other.descriptors.get(name) for name in names)
