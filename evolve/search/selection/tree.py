"""Monte Carlo tree search over the lineage: where to go deeper, and where to branch."""

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from evolve.core.protocols import Elite, Population, Visits
from evolve.search.selection.checks import check_above_0, check_number, check_whole
from evolve.search.selection.draws import WINDOW, then_best


@dataclass(frozen=True, slots=True, kw_only=True)
class Uct:
    """Descends from the roots by upper confidence bounds (Kocsis and Szepesvari 2006).

    At a program with N tickets in its subtree, a child with n of them scores Q + exploration *
    sqrt(ln N / n). Against the best child stands an explicit arm that expands the program itself:
    the highest Q of its children + exploration * sqrt(ln N) / a, after a expansions (AdaExplore,
    arXiv 2604.16625, `agent/mcts.py`). It is open while a is below widening * N ** power:
    progressive widening (Coulom 2007). Dead ends are not entered as long as there is another way;
    the path to the best program is none. KernelPro (arXiv 2606.26453) combines widening, the log of
    the speedup as reward, and dead ends; its constants are not published.

    The tree's archive keeps few roots; of more than 1000 the newest 1000 are looked at.

    Rewards are log speedups, scaled so that the held elites reach from 0 to 1; a ticket without a
    fitness has 0. Tickets under way count as visits on the whole way down (a virtual loss), so that
    parallel asks spread.

    Args:
        exploration: weight of the bound; AdaExplore has 0.25 (`--exploration_weight` in
            `agent/agent_entry.py`), and 0.3 in its KernelBench runs (`config/KB-l2`). The 1.414 in
            the signatures of its `agent/mcts.py` is for callers that give none; it has none.
        max_share: Q is the best reward of the subtree by this share, and its mean by the rest.
        widening: factor of the number of expansions that are allowed.
        power: their growth with the visits; 0.5 is common, 1 allows all.
        dead_failures: a program is a dead end when so many tickets, and all of it, have failed.
        dead_stale: and a subtree, when its best has not risen for so many tickets; AVO (arXiv
            2603.24517) takes 80 steps for a stall.

    Raises:
        UsageError: a setting is out of range.
    """

    exploration: float = 0.25
    max_share: float = 1.0
    widening: float = 1.0
    power: float = 0.5
    dead_failures: int = 4
    dead_stale: int = 80
    needs: ClassVar[frozenset[str]] = frozenset({"tree"})

    def __post_init__(self) -> None:
        check_number("exploration", self.exploration, least=0, example=0.25)
        check_number("max_share", self.max_share, least=0, most=1, example=1)
        check_above_0("widening", self.widening, example=1)
        check_number("power", self.power, least=0, most=1, example=0.5)
        check_whole("dead_failures", self.dead_failures, least=1, example=4)
        check_whole("dead_stale", self.dead_stale, least=1, example=80)

    @property
    def fires_at(self) -> dict[str, int]:
        """When a dead end can first be left."""
        return {"dead_failures": self.dead_failures, "dead_stale": self.dead_stale}

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        if not count or not len(population):
            return ()
        roots = population.roots[-WINDOW:]
        total = sum(_seen(population.visits(root.program)) for root in roots)
        line = _line_of_leader(population)
        children = self._alive(population, roots, line) or roots
        node, _ = self._best(population, children, total)
        while (child := self._descend(population, node, line)) is not None:
            node = child
        return then_best([node], population, count)

    def _descend(self, population: Population, node: Elite, line: set[str]) -> Elite | None:
        """The child to go on with; None if the program itself is to be expanded."""
        children = self._alive(population, population.children(node.program), line)
        visits = population.visits(node.program)
        seen = _seen(visits)
        if not children or not visits.asked:
            return None
        child, bound = self._best(population, children, seen)
        if visits.asked < self.widening * seen**self.power:
            quality = max(self._quality(population, child) for child in children)
            expand = quality + self.exploration * math.sqrt(math.log(seen)) / visits.asked
            if expand > bound:
                return None
        return child

    def _best(
        self, population: Population, children: Sequence[Elite], seen: int
    ) -> tuple[Elite, float]:
        """The child with the highest upper bound, the oldest of equals, and the bound."""

        def bound(child: Elite) -> float:
            visits = _seen(population.visits(child.program))
            spread = math.sqrt(math.log(max(seen, 1)) / visits)
            return self._quality(population, child) + self.exploration * spread

        best = max(children, key=bound)
        return best, bound(best)

    def _quality(self, population: Population, elite: Elite) -> float:
        visits, own = population.visits(elite.program), elite.fitness.value
        low, high = population[-1].fitness.value, population[0].fitness.value
        best = own if visits.best is None else max(own, visits.best)
        total = own - low + visits.value - visits.scored * low
        mean = total / (1 + visits.subtree)
        mixed = self.max_share * (best - low) + (1 - self.max_share) * mean
        return mixed / max(high - low, 1e-9)

    def _alive(
        self, population: Population, elites: Sequence[Elite], line: set[str]
    ) -> list[Elite]:
        """Those that are no dead ends; `line` leads to the best program and never is one."""
        return [
            elite
            for elite in elites
            if elite.program in line or not self._dead(population.visits(elite.program))
        ]

    def _dead(self, visits: Visits) -> bool:
        barren = visits.failed >= self.dead_failures and visits.failed == visits.subtree
        return barren or visits.stale >= self.dead_stale


@dataclass(frozen=True, slots=True, kw_only=True)
class Puct:
    """The best of the best 1000 by Q + exploration * scale * P * sqrt(1 + T) / (1 + n): no descent.

    The sampler of TTT-Discover (arXiv 2601.16175, `sampler.py`): P is a prior that falls linearly
    with the rank, scale the range of their fitness values, T the number of tickets, and n the
    tickets in the program's subtree. Q is the best fitness in it, the program's own as long as it
    has none; TTT-Discover looks at its direct children only. Tickets under way count as visits,
    where TTT-Discover bars the relatives of what it has drawn for the same batch.

    Raises:
        UsageError: `exploration` is negative.
    """

    exploration: float = 1.0

    def __post_init__(self) -> None:
        check_number("exploration", self.exploration, least=0, example=1)

    def select(self, population: Population, count: int, rng: random.Random) -> tuple[Elite, ...]:
        elites = list(population[:WINDOW])
        size, visits = len(elites), population.visits
        if not size:
            return ()
        scale = max(elites[0].fitness.value - elites[-1].fitness.value, 1e-6)
        bonus = self.exploration * scale * math.sqrt(1 + population.turn)
        step = 2 * bonus / (size * (size + 1))  # of the prior, from one rank to the next
        counts = [visits(elite.program) for elite in elites]
        scores = [
            (elite.fitness.value if own.best is None else own.best)
            + step * rank / (1 + own.subtree + own.pending)
            for elite, own, rank in zip(elites, counts, range(size, 0, -1), strict=True)
        ]
        best = heapq.nlargest(count, range(size), key=scores.__getitem__)
        return tuple(elites[number] for number in best)


def _line_of_leader(population: Population) -> set[str]:
    """The best program and its ancestors along main parents, as far as they are held."""
    line: set[str] = set()
    elite: Elite | None = population[0]
    while elite is not None and elite.program not in line:
        line.add(elite.program)
        elite = population.elite(elite.parents[0]) if elite.parents else None
    return line


def _seen(visits: Visits) -> int:
    """The visit that made the program, those of its subtree, and those under way there."""
    return 1 + visits.subtree + visits.pending
