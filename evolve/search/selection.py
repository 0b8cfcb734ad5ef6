"""Selection policies: which elites become parents. All pick different parents."""

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, rank


@dataclass(frozen=True, slots=True)
class Greedy:
    """The best elites, best first."""

    def select(self, elites: Sequence[Elite], count: int, rng: random.Random) -> tuple[Elite, ...]:
        return tuple(heapq.nsmallest(count, elites, key=rank))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tournament:
    """For each parent the best of `size` elites drawn without repetition.

    1 is a uniform choice; a `size` no smaller than the archive is greedy.

    Raises:
        UsageError: `size` is below 1.
    """

    size: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise UsageError(f"selection.size must be a whole number from 1, got {self.size!r}")

    def select(self, elites: Sequence[Elite], count: int, rng: random.Random) -> tuple[Elite, ...]:
        chosen: list[int] = []
        for _ in range(min(count, len(elites))):
            # Enough draws to leave `size` entrants when those chosen already are struck out.
            draws = rng.sample(range(len(elites)), min(self.size + len(chosen), len(elites)))
            entrants = [index for index in draws if index not in chosen][: self.size]
            chosen.append(min(entrants, key=lambda index: rank(elites[index])))
        return tuple(elites[index] for index in chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy:
    """The best elite that is left, or with probability `epsilon` any other one that is left.

    Raises:
        UsageError: `epsilon` is no probability.
    """

    epsilon: float = 0.3

    def __post_init__(self) -> None:
        number = isinstance(self.epsilon, (int, float)) and not isinstance(self.epsilon, bool)
        if not number or not 0 <= self.epsilon <= 1:
            raise UsageError(f"selection.epsilon must be from 0 to 1, got {self.epsilon!r}")

    def select(self, elites: Sequence[Elite], count: int, rng: random.Random) -> tuple[Elite, ...]:
        left = heapq.nsmallest(count, range(len(elites)), key=lambda index: rank(elites[index]))
        chosen: list[int] = []
        for _ in range(min(count, len(elites))):
            best = next(index for index in left if index not in chosen)
            others = len(elites) - len(chosen) - 1
            if others and rng.random() < self.epsilon:
                best = _other(rng, len(elites), {*chosen, best})
            chosen.append(best)
        return tuple(elites[index] for index in chosen)


def _other(rng: random.Random, size: int, struck: set[int]) -> int:
    draws = rng.sample(range(size), len(struck) + 1)
    return next(index for index in draws if index not in struck)
