"""Intervals for times and speedups, honest at the few process pairs that a search can pay for.

The unit is a pair of forked processes (baseline and candidate, interleaved); blocks within a
process are summarised before they come here, because the variance sits between processes.

A ratio is the Hodges-Lehmann estimate over the pairs' log ratios with the interval that inverts
the Wilcoxon signed-rank test. Its coverage is exact for any symmetric distribution of the log
ratios, whatever the tails (log ratios of an interleaved pair are symmetric under "no difference",
since the sides can be swapped; nearly so where they have different numbers of blocks). In
simulations at 7 pairs with a nominal 98.4 %, percentile bootstraps cover 88 to 97 % (of the median)
and 91 % (of the mean); Student's t covers what it says and is a tenth narrower on normal data, but
promises it for nothing else.

Looking several times costs confidence: each look gets its own share of the 5 % (Bonferroni), so
that the chance that any look excludes the truth stays at 5 % under any rule of stopping.

At three pairs no interval of ranks has such a share: there it is Student's t, widened by 3 % (but
for a screen), whose share holds for normal log ratios, and for processes that differ by modes of
3 % at most. A search ends there, by default, only for who is behind; a reward, or a search that is
content with wide intervals, may either way, and spends more of the 5 % there.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Interval, Ratio

FAMILY_ALPHA = 0.05
_STUDENT_T_2 = {0.05: 4.3027, 0.03: 5.6428, 0.01: 9.9248}  # two-sided, 2 degrees of freedom

# Pairs at each look, and how many Walsh averages the interval leaves out at either end: the fewest
# pairs of such a look are those at which its share of alpha can be spent at all. With 3 pairs no
# interval of ranks is narrow enough: there the second number is alpha, spent by Student's t.
_Plan = tuple[tuple[int, int | float], ...]
_PLANS: dict[Fidelity, _Plan] = {
    Fidelity.SCREEN: ((3, 0.05),),
    Fidelity.REWARD: ((3, 0.03), (7, 0), (14, 9)),
    Fidelity.SEARCH: ((3, 0.01), (7, 0), (10, 3), (14, 14)),
    Fidelity.VERIFY: ((10, 3), (16, 23), (36, 187)),  # the last for those that are close
}


# What stops after 3 pairs, which by chance may all be slow processes or all fast ones.
_NOISE_FLOOR = {Fidelity.REWARD: 0.03, Fidelity.SEARCH: 0.03}


def looks(fidelity: Fidelity) -> tuple[int, ...]:
    """Numbers of process pairs at which the interval may be looked at."""
    return tuple(pairs for pairs, _ in _PLANS[fidelity])


def alpha_at(fidelity: Fidelity, look_index: int) -> float:
    """The chance that the interval of one look excludes the truth (nominal for 3 pairs)."""
    pairs, spent = _PLANS[fidelity][look_index]
    return spent if isinstance(spent, float) else 2 * _signed_rank_cdf(pairs, spent)


def ratio_interval(
    log_ratios: Sequence[float],
    look_index: int,
    fidelity: Fidelity,
    noise_floor: float | None = None,
) -> Ratio:
    """Speedup from the pairs' natural log ratios (baseline time over candidate time).

    Args:
        log_ratios: One per process pair, exactly `looks(fidelity)[look_index]` of them.
        look_index: Which look this is.
        fidelity: Which plan of looks is followed.
        noise_floor: Half-width, in log units, that the device's A/A test says cannot be undercut
            at this number of pairs; widens the interval of 3 pairs only. By default that of
            the plan: none for a screen, 3 % for others.

    With 3 pairs the range covers the median in 75 % of cases: the interval is Student's t, exact
    for normal log ratios, plus the noise floor.
    """
    pairs, spent = _PLANS[fidelity][look_index]
    values = np.asarray(log_ratios, dtype=np.float64)
    if values.shape != (pairs,):
        raise ValueError(
            f"look {look_index} of a {fidelity} takes {pairs} pairs, got {values.size}"
        )
    if not np.isfinite(values).all():
        raise ValueError("log ratios have to be finite")
    averages = _walsh_averages(values)
    centre = float(np.median(averages))
    if isinstance(spent, float):
        noise_floor = _NOISE_FLOOR.get(fidelity, 0.0) if noise_floor is None else noise_floor
        half = _STUDENT_T_2[spent] * float(values.std(ddof=1)) / math.sqrt(pairs) + noise_floor
        middle = float(values.mean())
        low, high = min(middle - half, centre), max(middle + half, centre)
    else:
        low, high = float(averages[spent]), float(averages[-1 - spent])
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
