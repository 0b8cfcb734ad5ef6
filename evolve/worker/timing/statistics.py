"""Intervals for times and speedups, honest at the few process pairs that a search can pay for.

The unit is a pair of forked processes (baseline and candidate, interleaved); blocks within a
process are summarised before they come here, because the variance sits between processes.

A verification has at least eight pairs. Its ratio is the Hodges-Lehmann estimate over the pairs'
log ratios with the interval that inverts the Wilcoxon signed-rank test. Its coverage is exact for
any symmetric distribution of the log ratios, for any tails (log ratios of an interleaved pair are
symmetric under "no difference", since the sides can be swapped).

A search and a reward have interim analyses after one to eight pairs, too few for an interval of
ranks. They use the moderated t of Smyth (Linear models and empirical Bayes methods, 2004): the
variance of the pairs is shrunk to the variance between processes that programs timed against
themselves have on the device, which counts as `PRIOR_PAIRS` degrees of freedom. After one pair only
that prior counts, and the interval is wide. It is centred on the mean and extended to the
Hodges-Lehmann estimate if that is outside: centred on that estimate, it would miss the truth in 7 %
of searches if the times of processes are multimodal.

Interim analyses cost confidence: each gets its own share of the 5 % (Bonferroni), so that the
chance that any of them excludes the truth stays at 5 % under any stopping rule.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from evolve.core.measurement import CLEARLY_SLOWER, FAR_WIDTHS, WIDE, Interval, Ratio
from evolve.worker.session.plan import Interim, Plan

FAMILY_ALPHA = 0.05
PRIOR_PAIRS = 4
CLOSE = 0.2  # log ratio: sides that are farther apart are told apart anyway
_SEARCH_WIDTHS = 2  # of a verification's


def alpha_of(interim: Interim) -> float:
    """The chance that one analysis excludes the truth (for t: of normal log ratios)."""
    return interim.alpha or 2 * _signed_rank_cdf(interim.pairs, interim.left_out)


def interim_of(pairs: int) -> Interim:
    """A single analysis after so many pairs, whose interval of ranks is the narrowest of 95 %.

    Raises:
        ValueError: of fewer than 6 pairs not even the whole range covers 95 %.
    """
    if alpha_of(Interim(pairs)) > FAMILY_ALPHA:
        raise ValueError(f"{pairs} pairs are too few for an interval of 95 %; take 6 or more")
    left_out = 0
    while alpha_of(Interim(pairs, left_out + 1)) <= FAMILY_ALPHA:
        left_out += 1
    return Interim(pairs, left_out)


def ratio_interval(log_ratios: Sequence[float], interim: Interim, spread: float) -> Ratio:
    """Speedup from the pairs' natural log ratios (baseline time over candidate time).

    Args:
        log_ratios: One per process pair, exactly `interim.pairs` of them.
        interim: The analysis.
        spread: Standard deviation of a pair's log ratio: as found on the device by timing programs
            against themselves (`Device.spread`), or more if single blocks vary more.
    """
    values = np.asarray(log_ratios, dtype=np.float64)
    if values.shape != (interim.pairs,):
        raise ValueError(f"this analysis takes {interim.pairs} pairs, got {values.size}")
    if not np.isfinite(values).all():
        raise ValueError("log ratios have to be finite")
    averages = _walsh_averages(values)
    centre = float(np.median(averages))
    if interim.alpha:
        half, mean = _moderated_half(values, interim.alpha, spread), float(values.mean())
        low, high = min(mean - half, centre), max(mean + half, centre)
    else:
        low, high = float(averages[interim.left_out]), float(averages[-1 - interim.left_out])
    return Ratio(math.exp(centre), math.exp(low), math.exp(high))


def _moderated_half(values: NDArray[np.float64], alpha: float, spread: float) -> float:
    """Half of the interval of the moderated t."""
    own = float(((values - values.mean()) ** 2).sum())
    freedom = PRIOR_PAIRS + values.size - 1
    deviation = math.sqrt((PRIOR_PAIRS * spread**2 + own) / freedom)
    return student_t(1 - alpha / 2, freedom) * deviation / math.sqrt(values.size)


def student_t(probability: float, freedom: int) -> float:
    """Quantile of Student's t, within 1 % from 4 degrees of freedom and up to 0.999 on.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))


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


def is_settled(ratio: Ratio, plan: Plan, interim: int, may_lose: bool, wanted: float) -> bool:
    """Narrow enough, or (if that `may` be) clearly slower: then width is of no interest.

    A search or a screen is content with twice the half-width `wanted` of a verification. The last
    look of a verification, with many pairs, is for sides that are close: on an unsteady host they
    are told apart by nothing else. Others have the second look at most, and the first if the
    interval is not much wider than wanted, or if wide intervals will do.
    """
    if plan.rough_half_width is not None:  # a decision, or a rough figure
        return not ratio.low <= 1.0 <= ratio.high or enough(ratio, plan.rough_half_width)
    if may_lose and ratio.high < CLEARLY_SLOWER:
        return True
    if not plan.is_final:
        return enough(ratio, _SEARCH_WIDTHS * wanted)
    if wanted >= WIDE:
        return True
    if abs(ratio.log().value) >= CLOSE:
        return interim > 0 or enough(ratio, FAR_WIDTHS * wanted)
    return enough(ratio, wanted)


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
