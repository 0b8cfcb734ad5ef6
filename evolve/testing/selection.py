"""The requirements for every selection policy. Subclass, give a `make`, for pytest to collect."""

import math
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from evolve.core.measurement import Interval
from evolve.core.protocols import Elite, SelectionPolicy, Visits
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation

SIZES = (0, 1, 2, 3, 50)


class SelectionConformance:
    """The invariants of `evolve.core.protocols.SelectionPolicy`, over populations of all kinds."""

    def make(self) -> SelectionPolicy:
        raise NotImplementedError

    def population(self, size: int, seed: int = 0) -> MemoryPopulation:
        """A family of programs on three islands, some equally fast, most of them parents before."""
        rng = random.Random(f"{size}/{seed}")
        elites = [_elite(number, rng) for number in range(size)]
        return MemoryPopulation(
            elites,
            visits={elite.program: _visits(rng) for elite in elites if rng.random() < 0.8},
            slots={elite.program: f"i{rng.randrange(3)}/{elite.program}" for elite in elites},
            turn=3 * size + seed,
        )

    def populations(self) -> Iterator[MemoryPopulation]:
        """Of several sizes, then those in which all are alike, or have done nothing but fail."""
        for size in SIZES:
            yield self.population(size)
        alike = [make_elite(f"twin-{number}", sequence=number) for number in range(5)]
        failed = Visits(asked=90, told=90, failed=90, subtree=90, stale=90)
        yield MemoryPopulation(alike, turn=7)
        yield MemoryPopulation(alike, visits={elite.program: failed for elite in alike}, turn=450)

    def test_it_gives_as_many_parents_as_asked_for_and_there_are(self) -> None:
        for population in self.populations():
            for count in (0, 1, 2, 5):
                policy = self.make()
                chosen = policy.select(population, count, random.Random(1))
                groups: Collection[Sequence[Elite]] = [population]
                if "islands" in getattr(policy, "needs", ()):
                    groups = population.islands.values() or [()]
                sizes = {
                    min(len(group), count) for group in groups if all(e in group for e in chosen)
                }
                assert len(chosen) in sizes

    def test_parents_are_elites_and_all_different(self) -> None:
        for population in self.populations():
            for seed in range(20):
                chosen = self.make().select(population, 4, random.Random(seed))
                assert len({parent.program for parent in chosen}) == len(chosen)
                assert all(parent == population.elite(parent.program) for parent in chosen)

    def test_the_same_generator_gives_the_same_parents(self) -> None:
        used = self.make()
        for seed in range(20):
            first = used.select(self.population(30, seed), 3, random.Random(seed))
            assert first == used.select(self.population(30, seed), 3, random.Random(seed))
            assert first == self.make().select(self.population(30, seed), 3, random.Random(seed))

    def test_what_it_has_chosen_before_makes_no_difference(self) -> None:
        used = self.make()
        used.select(self.population(50), 5, random.Random(3))
        for population in self.populations():
            fresh = self.make().select(population, 2, random.Random(4))
            assert fresh == used.select(population, 2, random.Random(4))

    def test_the_population_is_left_alone(self) -> None:
        population = self.population(10)
        self.make().select(population, 3, random.Random(2))
        fresh = self.population(10)
        assert list(population) == list(fresh)
        assert population.islands == fresh.islands
        assert list(population.roots) == list(fresh.roots)


def _elite(number: int, rng: random.Random) -> Elite:
    """A child of an earlier one, most of the time of one that is held."""
    fitness = math.log(rng.choice([0.5, 1.0, 1.5, 2.0]))
    spread = rng.choice([0.0, 0.02, 0.3])
    parent = rng.randrange(-2, number) if number else -1
    return replace(
        make_elite(f"program-{number}", sequence=number),
        fitness=Interval(fitness, fitness - spread, fitness + spread),
        parents=(f"program-{parent}",) if parent >= -1 else (),
        evaluations=rng.randrange(1, 4),
    )


def _visits(rng: random.Random) -> Visits:
    told = rng.randrange(1, 8)
    failed = rng.randrange(told + 1)
    subtree = told + rng.randrange(10)
    scored = rng.randrange(subtree - failed + 1)
    pending = rng.randrange(3)
    return Visits(
        asked=told + pending,
        told=told,
        failed=failed,
        subtree=subtree,
        scored=scored,
        value=scored * 0.3,
        best=0.5 if scored else None,
        stale=rng.randrange(subtree + 1),
        pending=pending,
    )
