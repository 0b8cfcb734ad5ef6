"""Policies that treat a fitness as an estimate with a spread."""

import heapq
import math
import random
from dataclasses import dataclass
from itertools import takewhile

from evolve.core.errors import UsageError
from evolve.core.protocols import Elite, Population
from evolve.search.selection.checks import check_number, check_whole
from evolve.search.selection.draws import WINDOW, then_best

PRIORITIES = ("mean", "ucb")
_Z95 = 1.959963984540054  # an interval is this many standard deviations to either side
_GOLDEN = (math.sqrt(5) - 1) / 2
_REACH = 4.0  # standard deviations beyond which a posterior is not drawn from


@dataclass(frozen=True, slots=True, kw_only=True)
class Polca:
    """The head of a priority queue, its candidates in turn (arXiv 2603.14769).

    The priority is the pooled mean of a program's evaluations (`mean`), or its upper bound (`ucb`):
    mean + exploration * sqrt(ln(T + 1) / n) * noise, with T tickets and n evaluations of the
    program (OpenTrace, `priority_search.py`). Ties go to the newest. POLCA pops the first
    `candidates`, makes `proposals` of each, and evaluates all of them again; here tickets take the
    same candidates by turns, all as often, and the operator `remeasure_head` evaluates
    again.

    Args:
        candidates: length of the queue's head, k in the paper.
        proposals: tickets in a row for each candidate, n in the paper.
        priority: `mean` or `ucb`.
        exploration: c of the upper bound.
        noise: range of one evaluation in log speedup. POLCA's is that of the score, which a log
            speedup does not have; the bound is about the possible error of a measurement.

    Raises:
        UsageError: a setting is out of range.
    """

    candidates: int = 10
    proposals: int = 1
    priority: str = "mean"
    exploration: float = 1.0
    noise: float = 0.1

    def __post_init__(self) -> None:
        check_whole("candidates", self.candidates, least=1, example=10)
        check_whole("proposals", self.proposals, least=1, example=1)
        check_number("exploration", self.exploration, least=0, example=1)
        check_number("noise", self.noise, least=0, example=0.1)
        if self.priority not in PRIORITIES:
            raise UsageError(
                f"selection.priority is {self.priority!r}; choose one of {', '.join(PRIORITIES)}"
            )

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        if not count or not len(population):
            return ()
        head = self._head(population, max(self.candidates, count))
        places = min(self.candidates, len(head))
        # Not of one place a turn: if others have every second ticket, half of an even head would
        # never be asked. Steps of the golden section come to all places alike (Weyl 1916).
        start = int(population.turn // self.proposals * _GOLDEN % 1 * places)
        turned = head[start:places] + head[:start] + head[places:]
        return tuple(turned[:count])

    def _head(self, population: Population, length: int) -> list[Elite]:
        """The elites of the highest priority, highest first."""
        bonus = 0.0
        if self.priority == "ucb":
            bonus = self.exploration * self.noise * math.sqrt(math.log(population.turn + 1))

        def priority(elite: Elite) -> tuple[float, int]:
            return elite.fitness.value + bonus / math.sqrt(elite.evaluations), elite.sequence

        # In the order of their values, none comes up to these once the bonus does not reach them.
        floor, _ = min(map(priority, population[:length]))
        reached = takewhile(lambda elite: elite.fitness.value + bonus >= floor, population)
        return heapq.nlargest(length, reached, key=priority)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thompson:
    """The elites whose speed, drawn from its posterior, is highest (Thompson 1933).

    The posterior of a log speedup is normal, with the value and the 95 % interval of the pooled
    fitness: a lucky measurement loses its lead as soon as it is repeated, and a clearly worse
    program is not chosen. `widening` multiplies the spread, for the paths that a slower program may
    still open. The best 1000 take part, without those whose draw could beat the last chosen one
    only beyond four standard deviations of both.

    Raises:
        UsageError: `widening` is negative.
    """

    widening: float = 1.0

    def __post_init__(self) -> None:
        check_number("widening", self.widening, least=0, example=1)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        if not count or not len(population):
            return ()
        reach = _REACH * self.widening / _Z95
        floor = min(
            elite.fitness.value - reach * (elite.fitness.value - elite.fitness.low)
            for elite in population[:count]
        )
        drawn = [
            (self._draw(elite, rng), -number, elite)
            for number, elite in enumerate(population[:WINDOW])
            if elite.fitness.value + reach * (elite.fitness.high - elite.fitness.value) >= floor
        ]
        chosen = [elite for _, _, elite in heapq.nlargest(count, drawn)]
        return then_best(chosen, population, count)

    def _draw(self, elite: Elite, rng: random.Random) -> float:
        deviation = (elite.fitness.high - elite.fitness.low) / (2 * _Z95)
        return rng.gauss(elite.fitness.value, self.widening * deviation)
