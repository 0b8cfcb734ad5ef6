"""Whether two rewards would teach the same: rank correlation, and where they differ most."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolve.trajectories.rewards.shaping import Scores


@dataclass(frozen=True, slots=True)
class Difference:
    """A step that two rewards rank differently: its place, and its rank from 0 (worst) to 1."""

    place: int
    rank: float
    other_rank: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two rewards over the steps that both can score.

    Attributes:
        count: how many those are.
        correlation: Spearman's rank correlation; None where one of them ranks nothing.
        differences: the steps that they rank most differently, the most different first.
    """

    count: int
    correlation: float | None
    differences: tuple[Difference, ...]


def agreement(scores: Scores, others: Scores, most: int) -> Agreement:
    """Compare two lists of scores of the same steps; None is a score that is not known."""
    pairs = zip(scores, others, strict=True)
    both = [place for place, pair in enumerate(pairs) if None not in pair]
    one = _ranks([scores[place] for place in both])
    other = _ranks([others[place] for place in both])
    apart = np.abs(one - other)
    order = np.argsort(-apart, kind="stable")[:most]
    scale = max(len(both) - 1, 1)
    return Agreement(
        count=len(both),
        correlation=_correlation(one, other),
        differences=tuple(
            Difference(both[at], float(one[at]) / scale, float(other[at]) / scale)
            for at in order
            if apart[at] > 0
        ),
    )


def _ranks(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Ranks from 0, equal values sharing the mean of theirs."""
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = ends - (counts + 1) / 2
    return means[inverse] if array.size else array


def _correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float | None:
    if one.size < 2 or not one.std() or not other.std():
        return None
    return float(np.corrcoef(one, other)[0, 1])
