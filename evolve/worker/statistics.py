"""Intervals for times and speedups, honest at the few process pairs that a search can pay for.

The unit is a pair of forked processes (baseline and candidate, interleaved); blocks within a
process are summarised before they come here, because the variance sits between processes.

A ratio is the Hodges-Lehmann estimate over the pairs' log ratios with the interval that inverts
the Wilcoxon signed-rank test. Its coverage is exact for any symmetric distribution of the log
ratios, whatever the tails (log ratios of an interleaved pair are symmetric under "no difference",
since the sides can be swapped). In simulations at 7 pairs with a nominal 98.4 %, percentile
bootstraps cover 88 to 97 % (of the median) and 91 % (of the mean); Student's t covers what it says
and is a tenth narrower on normal data, but promises it for nothing else.

Looking several times costs confidence: each look gets its own share of the 5 % (Bonferroni), so
that the chance that any look excludes the truth stays at 5 % under any rule of stopping.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Interval, Ratio

FAMILY_ALPHA = 0.05
_STUDENT_T_2 = 4.3027  # 97.5 % quantile of Student's t with 2 degrees of freedom

# Pairs at each look, and how many Walsh averages the interval leaves out at either end. The first
# look of each plan is the fewest pairs at which its share of alpha can be spent at all.
_PLANS: dict[Fidelity, tuple[tuple[int, int], ...]] = {
    Fidelity.SCREEN: ((3, 0),),
    Fidelity.REWARD: ((7, 0), (10, 4), (14, 16)),
    Fidelity.SEARCH: ((7, 0), (10, 4), (14, 16)),
    Fidelity.VERIFY: ((10, 3), (16, 23), (24, 70)),
}


def looks(fidelity: Fidelity) -> tuple[int, ...]:
    """Numbers of process pairs at which the interval may be looked at."""
    return tuple(pairs for pairs, _ in _PLANS[fidelity])


def alpha_at(fidelity: Fidelity, look_index: int) -> float:
    """The chance that the interval of one look excludes the truth (nominal for a screen)."""
    pairs, left_out = _PLANS[fidelity][look_index]
    return FAMILY_ALPHA if fidelity is Fidelity.SCREEN else 2 * _signed_rank_cdf(pairs, left_out)


def ratio_interval(
    log_ratios: Sequence[float], look_index: int, fidelity: Fidelity, noise_floor: float = 0.0
) -> Ratio:
    """Speedup from the pairs' natural log ratios (baseline time over candidate time).

    Args:
        log_ratios: One per process pair, exactly `looks(fidelity)[look_index]` of them.
        look_index: Which look this is.
        fidelity: Which plan of looks is followed.
        noise_floor: Half-width, in log units, that the device's A/A test says cannot be undercut
            at this number of pairs; widens a screen's interval only.

    A screen of 3 pairs cannot be exact (the range of 3 covers the median in 75 % of cases): its
    interval is Student's t, exact for normal log ratios, plus the noise floor.
    """
    pairs, left_out = _PLANS[fidelity][look_index]
    values = np.asarray(log_ratios, dtype=np.float64)
    if values.shape != (pairs,):
        raise ValueError(
            f"look {look_index} of a {fidelity} takes {pairs} pairs, got {values.size}"
        )
    if not np.isfinite(values).all():
        raise ValueError("log ratios have to be finite")
    averages = _walsh_averages(values)
    centre = float(np.median(averages))
    if fidelity is Fidelity.SCREEN:
        half = _STUDENT_T_2 * float(values.std(ddof=1)) / math.sqrt(pairs) + noise_floor
        middle = float(values.mean())
        low, high = min(middle - half, centre), max(middle + half, centre)
    else:
        low, high = float(averages[left_out]), float(averages[-1 - left_out])
    return Ratio(math.exp(centre), math.exp(low), math.exp(high))


def median_interval(times_ms: Sequence[float]) -> Interval:
    """Median with the interval between order statistics that covers it in at least 95 % of cases.

    Below 6 values no such interval exists; the range is given, which covers in 1 - 2 ** (1 - n).
    """
    times = np.sort(np.asarray(times_ms, dtype=np.float64))
    if times.size == 0:
        raise ValueError("no times")
    left_out = 0
    while 2 * _binomial_cdf(times.size, left_out) <= FAMILY_ALPHA:
        left_out += 1
    left_out = max(0, left_out - 1)
    return Interval(float(np.median(times)), float(times[left_out]), float(times[-1 - left_out]))


def enough(ratio: Ratio, target_half_width: float) -> bool:
    """Whether the interval is as narrow as wanted (relative half-width, 0.03 is 3 %)."""
    return ratio.half_width <= target_half_width


def _walsh_averages(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sorted means of all pairs of values, each with itself too."""
    first, second = np.triu_indices(values.size)
    return np.sort((values[first] + values[second]) / 2)


@lru_cache
def _signed_rank_cdf(pairs: int, most: int) -> float:
    """P(W <= most) of the signed-rank statistic under symmetry, by counting subsets of ranks."""
    counts = [1] + [0] * most
    for rank in range(1, pairs + 1):
        for total in range(most, rank - 1, -1):
            counts[total] += counts[total - rank]
    return float(sum(counts) / 2**pairs)


def _binomial_cdf(count: int, most: int) -> float:
    """P(at most `most` of `count` fair coins show heads)."""
    return float(sum(math.comb(count, heads) for heads in range(most + 1)) / 2**count)
