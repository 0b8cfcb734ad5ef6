"""What every selection policy holds to. Subclass, give a `make`, and let pytest collect it."""

import random

from evolve.core.protocols import Elite, SelectionPolicy
from evolve.testing.parts import make_elite


class SelectionConformance:
    """The invariants of `evolve.core.protocols.SelectionPolicy`."""

    def make(self) -> SelectionPolicy:
        raise NotImplementedError

    def elites(self, count: int) -> list[Elite]:
        """Elites in no order of fitness, some of them equal."""
        rng = random.Random(count)
        return [
            make_elite(f"program-{n}", speedup=rng.choice([0.5, 1.0, 1.5, 2.0]), sequence=n)
            for n in range(count)
        ]

    def test_it_gives_as_many_parents_as_asked_for_and_there_are(self) -> None:
        for size in (0, 1, 2, 3, 50):
            for count in (0, 1, 2, 5):
                chosen = self.make().select(self.elites(size), count, random.Random(1))
                assert len(chosen) == min(size, count)

    def test_parents_are_elites_and_all_different(self) -> None:
        elites = self.elites(20)
        for seed in range(50):
            chosen = self.make().select(elites, 4, random.Random(seed))
            assert len({parent.program for parent in chosen}) == 4
            assert all(parent in elites for parent in chosen)

    def test_the_same_generator_gives_the_same_parents(self) -> None:
        elites, used = self.elites(30), self.make()
        for seed in range(20):
            first = used.select(elites, 3, random.Random(seed))
            assert first == used.select(elites, 3, random.Random(seed))
            assert first == self.make().select(elites, 3, random.Random(seed))

    def test_the_elites_are_left_alone(self) -> None:
        elites = self.elites(10)
        self.make().select(elites, 3, random.Random(2))
        assert elites == self.elites(10)
