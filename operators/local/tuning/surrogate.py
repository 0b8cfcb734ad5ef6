"""A model of how fast instances are, from the measured ones, and its proposals.

A Gaussian process over the places of choices (Rasmussen and Williams, 2006) and its expected
improvement (Jones, Schonlau and Welch, 1998). Its mean is the expectation before any measurement
(`.expectation`), up to a constant; only without one, the first instance is drawn at random. A
program's time is the sum of those of its kernels, so facts about one kernel say nothing about
another: the covariance is a sum over kernels. Within a kernel half of it is a mean over tunables,
each by itself, which learns main effects early, and half is of the distance in all of them
together. Numbers are as far apart as their places among the choices, two words as the first and the
last number.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evolve.core.program import Assignment
from evolve.core.source.tunables import Space, Tunable
from operators.local.tuning.groups import by_kernel

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]

_SLOWEST = math.log(3.0)  # below the best, measured or expected, more does not matter
_LENGTHS = (0.3, 0.6, 1.2)  # of correlation; a tunable's choices span 1
_SPREADS = (0.1, 0.2, 0.4, 0.8)  # of log speedups about the expectation
_USUAL, _FACTOR = 0.2, 2.0  # of spreads, which are log-normal
_NOISE = 0.01  # of a screen's log speedup
_EQUAL = 1e-9  # of the largest gain; late in a run all gains are tiny

Expected = Callable[[Sequence[Assignment]], Vector]


def nothing(assignments: Sequence[Assignment]) -> Vector:
    """Expected of instances of which nothing is."""
    return np.zeros(len(assignments))


def suggest(
    space: Space,
    known: Sequence[tuple[Assignment, float | None]],
    candidates: Sequence[Assignment],
    rng: random.Random,
    expected: Expected = nothing,
) -> Assignment:
    """The candidate that is expected to improve most on the best that is known.

    Args:
        space: the program's tunables.
        known: instances with their log speedups; None for one that cannot run.
        candidates: instances that were not tried, at least one.
        rng: decides among equals.
        expected: log speedups of instances before anything is known, up to a constant.
    """
    tried = [one for one, _ in known]
    before = expected([*tried, *candidates])
    before = np.maximum(before, before.max() - _SLOWEST)
    inside, gains = before[: len(tried)], before[len(tried) :]
    values = [value for _, value in known if value is not None]
    if values and (len(known) > 1 or np.ptp(before) > 0):  # else only what is far would tempt
        least = max(values) - _SLOWEST
        targets = np.array([least if value is None else max(value, least) for _, value in known])
        places = Places(space)
        model = _best_fit(places, places(tried), targets - inside)
        gains = model.improvement(places(candidates), gains, float(targets.max()))
    best = np.flatnonzero(gains >= gains.max() - _EQUAL * abs(gains.max()))
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
    """A fitted process; `evidence` is the log likelihood of its data."""

    places: Places
    inside: list[Matrix]
    length: float
    spread: float
    constant: float
    factor: Matrix  # lower Cholesky factor of the covariance
    weights: Vector
    evidence: float

    def improvement(self, outside: list[Matrix], expected: Vector, best: float) -> Vector:
        """Expected improvement on the best, for each point."""
        across = self.spread**2 * self.places.covariance(outside, self.inside, self.length)
        mean = expected + self.constant + across @ self.weights
        solved = np.linalg.solve(self.factor, across.T)
        deviation = np.sqrt(np.maximum(self.spread**2 - (solved**2).sum(0), 1e-8))
        score = (mean - best) / deviation
        density = np.exp(-0.5 * score**2) / math.sqrt(2 * math.pi)
        below = 0.5 * np.vectorize(math.erfc)(-score / math.sqrt(2))  # 1 + erf is 0 below -6
        improvement: Vector = deviation * (score * below + density)
        return improvement


def _best_fit(places: Places, inside: list[Matrix], targets: Vector) -> _Model:
    """Of all lengths and spreads the likeliest ("type II maximum a posteriori")."""
    alike = [(length, places.covariance(inside, inside, length)) for length in _LENGTHS]
    return max(
        (
            _fit(places, inside, targets, length, spread, covariance)
            for length, covariance in alike
            for spread in _SPREADS
        ),
        key=lambda fitted: fitted.evidence,
    )


def _fit(
    places: Places,
    inside: list[Matrix],
    targets: Vector,
    length: float,
    spread: float,
    alike: Matrix,
) -> _Model:
    """With an unknown constant for the mean (Rasmussen and Williams, section 2.7).

    The evidence knows that the constant is not certain; the improvement takes it for certain.
    Tables of an H200 are done as well either way, but if nothing is expected, looks that add its
    variance go further away at first.
    """
    covariance = spread**2 * alike + _NOISE**2 * np.eye(len(targets))
    factor: Matrix = np.linalg.cholesky(covariance).astype(np.float64)
    ones, values = np.linalg.solve(factor, np.stack([np.ones(len(targets)), targets], 1)).T
    constant = float(ones @ values / (ones @ ones))
    half = values - constant * ones
    weights: Vector = np.linalg.solve(factor.T, half)
    evidence = -0.5 * float(half @ half) - float(np.log(np.diag(factor)).sum())
    evidence -= 0.5 * math.log(ones @ ones) + 0.5 * math.log(spread / _USUAL, _FACTOR) ** 2
    return _Model(places, inside, length, spread, constant, factor, weights, evidence)
