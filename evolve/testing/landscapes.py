"""Landscapes with a planted optimum: tests of search methods.

A program is a point: a structure (the algorithm) and a few knobs, written as the constants of a
Python module that is never executed. Each structure has an optimum of its own and falls off in a
straight line around it, so that every landscape can be read off its table. The difficulty of each
is tested without any search method; they are not adjusted to how methods fare.
"""

import ast
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.task import Task
from evolve.testing.synthetic import REFERENCE

LEVELS = 16
"""Values of a knob: 0 to 15."""

PEAK = math.log(4.0)
"""Log speedup of the optimum; the score 1."""

KNOBS = 4
_CENTRE = (LEVELS // 2,) * KNOBS
_SOURCE = '''\
"""A point of a synthetic landscape: nothing here is ever executed."""

STRUCTURE = {structure}
KNOBS = {knobs}


class ModelNew:
    def forward(self, x):
        return x
'''


@dataclass(frozen=True, slots=True)
class Point:
    """A program: the number of its structure, and its knobs."""

    structure: int
    knobs: tuple[int, ...]

    def source(self) -> str:
        """The module that is this point."""
        return _SOURCE.format(structure=self.structure, knobs=self.knobs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """An algorithm: the score `height` at its `optimum`, falling to `base` over `reach` steps.

    Steps are those of all knobs together (Manhattan distance).
    """

    optimum: tuple[int, ...]
    height: float
    base: float = 0.0
    reach: int = 24

    def score(self, knobs: tuple[int, ...]) -> float:
        """The score at these knobs."""
        distance = sum(abs(a - b) for a, b in zip(self.optimum, knobs, strict=True))
        return self.base + (self.height - self.base) * max(0.0, 1 - distance / self.reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Landscape:
    """The judge's facts about a synthetic task; the best score is 1.

    Attributes:
        name: how it is hard.
        structures: the algorithms there are.
        start: the task's seed.
        noise: standard deviation of one full measurement, in log speedup.
        stairs: where not 0, scores come in so many steps, and all between them is level.
    """

    name: str
    structures: tuple[Structure, ...]
    start: Point = Point(0, _CENTRE)
    noise: float = 0.01
    stairs: int = 0

    def score(self, source: str) -> float:
        """The true score of a program, without noise."""
        point = point_of(source)
        score = self.structures[point.structure].score(point.knobs)
        return math.floor(score * self.stairs + 1e-9) / self.stairs if self.stairs else score

    def progress(self, source: str) -> float:
        """How much of the way from the start (0) to the optimum (1) a program has made."""
        start = self.score(self.start.source())
        return (self.score(source) - start) / (1 - start)

    def task(self) -> Task:
        """The task that `LandscapeEvaluator` judges, with the start as its seed."""
        return Task(name=self.name, source=REFERENCE, size="tiny", seeds=(self.start.source(),))


def point_of(source: str) -> Point:
    """The point that a program is."""
    found = constants(source)
    return Point(found["STRUCTURE"], tuple(found["KNOBS"]))


def constants(source: str) -> dict[str, Any]:
    """The constants of a module by name."""
    return {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }


def family(seed: int) -> Mapping[str, Landscape]:
    """The five landscapes, with optima placed by the seed.

    - `deceptive`: one structure climbs at once and ends at 0.6. Another reaches 1 behind a valley:
      it is slow but for 12 steps around its optimum, 9 steps beyond the top of the first.
    - `multi_modal`: eight structures, each a hill of its own; one of them reaches 1.
    - `noisy`: one slope from the start on, level behind it, and measurements that are 5 % off
      (standard deviation).
    - `plateau`: one slope in four stairs, six steps apart, with nothing to feel in between.
    - `needle`: level but for a hill of 5 steps radius, 20 steps from the start.
    """
    rng = random.Random(seed)
    side = _signs(rng)
    top = _away(rng, 12, side)
    hills = [rng.uniform(0.3, 0.8) for _ in range(7)]
    hills.insert(rng.randrange(1, 8), 1.0)
    found = (
        Landscape(
            name="deceptive",
            structures=(
                Structure(optimum=top, height=0.6, reach=12),
                Structure(optimum=_away(rng, 9, side, top), height=1.0, base=-0.1, reach=12),
            ),
        ),
        Landscape(
            name="multi_modal",
            structures=tuple(
                Structure(optimum=_away(rng, 16), height=height, base=-0.3) for height in hills
            ),
        ),
        Landscape(
            name="noisy", structures=(Structure(optimum=_away(rng, 24), height=1.0),), noise=0.05
        ),
        Landscape(
            name="plateau", structures=(Structure(optimum=_away(rng, 24), height=1.0),), stairs=4
        ),
        Landscape(
            name="needle", structures=(Structure(optimum=_away(rng, 20), height=1.0, reach=5),)
        ),
    )
    return {landscape.name: landscape for landscape in found}


def _signs(rng: random.Random) -> list[int]:
    return [rng.choice((-1, 1)) for _ in range(KNOBS)]


def _away(
    rng: random.Random, steps: int, side: Sequence[int] = (), origin: Sequence[int] = _CENTRE
) -> tuple[int, ...]:
    """Knobs so many steps from the origin, each to its side."""
    knobs, side = list(origin), side or _signs(rng)
    while steps:
        number = rng.randrange(KNOBS)
        moved = knobs[number] + side[number]
        if 0 <= moved < LEVELS:
            knobs[number], steps = moved, steps - 1
    return tuple(knobs)
