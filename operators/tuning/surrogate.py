"""A model of how fast instances are, from those that were measured, and what it would try next.

A Gaussian process over the places of choices (Rasmussen and Williams, 2006) and its expected
improvement (Jones, Schonlau and Welch, 1998). A program's time is the sum of those of its kernels,
so what is known of one kernel says nothing of another: the covariance is a sum over kernels. Within
a kernel half of it is a mean over tunables, each by itself, which learns main effects early, and
half is of the distance in all of them together. Numbers are as far apart as their places among the
choices, two words as the first and the last number.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolve.core.program import Assignment
from evolve.core.tunables import Space, Tunable
from operators.tuning.groups import by_kernel

Matrix = NDArray[np.float64]

_SLOWEST = math.log(3.0)  # below the best by as much, by how much more does not matter
_LENGTHS = (0.3, 0.6, 1.2, 2.4)  # of correlation; a tunable's choices span 1
_NOISES = (1e-4, 1e-2)  # variances, of values with variance 1


def suggest(
    space: Space,
    known: Sequence[tuple[Assignment, float | None]],
    candidates: Sequence[Assignment],
    rng: random.Random,
) -> Assignment:
    """The candidate that is expected to improve most on the best that is known.

    Args:
        space: the program's tunables.
        known: instances with their log speedups; None for one that cannot run.
        candidates: instances that were not tried, at least one.
        rng: decides among equals.
    """
    values = [value for _, value in known if value is not None]
    if not values:
        return rng.choice(candidates)
    least = max(values) - _SLOWEST
    targets = np.array([least if value is None else max(value, least) for _, value in known])
    places = Places(space)
    inside, outside = places([one for one, _ in known]), places(candidates)
    spread = float(targets.std()) or 1.0
    scaled = (targets - targets.mean()) / spread
    model = max(
        (_fit(places, inside, scaled, length, noise) for length in _LENGTHS for noise in _NOISES),
        key=lambda fitted: fitted.evidence,
    )
    gains = model.improvement(outside, float(scaled.max()))
    best = np.flatnonzero(gains >= gains.max() - 1e-12)
    return candidates[int(rng.choice(best.tolist()))]


class Places:
    """Instances as points, for each kernel with an axis for each of its tunables.

    A number's place is between 0 and 1; a word's is its number, which only tells it from others.
    """

    def __init__(self, space: Space) -> None:
        self._groups = [list(group.values()) for group in by_kernel(space).values()]
        self._are_words = [
            np.array([isinstance(tunable.choices[0], bool | str) for tunable in group])
            for group in self._groups
        ]

    def __call__(self, assignments: Sequence[Assignment]) -> list[Matrix]:
        return [
            np.array([[_place(tunable, one) for tunable in group] for one in assignments])
            for group in self._groups
        ]

    def covariance(self, left: list[Matrix], right: list[Matrix], length: float) -> Matrix:
        """Matérn 5/2, averaged over kernels; variance 1."""
        total = np.zeros((len(left[0]), len(right[0])))
        for ours, theirs, are_words in zip(left, right, self._are_words, strict=True):
            apart = np.abs(ours[:, None, :] - theirs[None, :, :])
            apart = np.where(are_words, np.minimum(apart, 1.0), apart)
            single = _matern(apart, length).mean(-1)
            total += 0.5 * single + 0.5 * _matern(np.sqrt((apart**2).sum(-1)), length)
        return total / len(left)


def _place(tunable: Tunable, assignment: Assignment) -> float:
    value = assignment.get(tunable.name, tunable.default)
    if value is None:
        return -1.0
    index = tunable.index(value)
    if isinstance(value, bool | str):
        return float(index)
    return index / max(len(tunable.choices) - 1, 1)


def _matern(distance: Matrix, length: float) -> Matrix:
    scaled = math.sqrt(5) * distance / length
    covariance: Matrix = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return covariance


@dataclass(frozen=True, slots=True)
class _Model:
    """A fitted process; `evidence` is the log likelihood of what it was fitted to."""

    places: Places
    inside: list[Matrix]
    length: float
    factor: Matrix  # lower Cholesky factor of the covariance
    weights: Matrix
    evidence: float

    def improvement(self, outside: list[Matrix], best: float) -> Matrix:
        """Expected improvement on the best, for each point."""
        across = self.places.covariance(outside, self.inside, self.length)
        mean = across @ self.weights
        solved = np.linalg.solve(self.factor, across.T)
        deviation = np.sqrt(np.maximum(1.0 - (solved**2).sum(0), 1e-12))
        score = (mean - best) / deviation
        density = np.exp(-0.5 * score**2) / math.sqrt(2 * math.pi)
        below = 0.5 * (1 + np.vectorize(math.erf)(score / math.sqrt(2)))
        improvement: Matrix = deviation * (score * below + density)
        return improvement


def _fit(
    places: Places, inside: list[Matrix], targets: Matrix, length: float, noise: float
) -> _Model:
    covariance = places.covariance(inside, inside, length) + noise * np.eye(len(targets))
    factor: Matrix = np.linalg.cholesky(covariance).astype(np.float64)
    half = np.linalg.solve(factor, targets)
    weights: Matrix = np.linalg.solve(factor.T, half)
    evidence = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
    return _Model(places, inside, length, factor, weights, evidence)
