"""What choosing one parent costs, for every selection policy that ships.

    python -m tests.benchmarks.bench_selection --sizes 100,1000,10000

Policies see the archive only, which holds 10^4 programs at most whatever is stored. The population
is a tree on four islands in which every second program was a parent.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from evolve.core.measurement import Interval
from evolve.core.protocols import SelectionPolicy, Visits
from evolve.search import selection
from evolve.testing.parts import make_elite
from evolve.testing.population import MemoryPopulation
from tests.benchmarks.conditions import print_conditions

CALLS = 41


class Prepared(MemoryPopulation):
    """With islands at hand, as the engine keeps them."""

    @property
    def islands(self):
        return self._islands

    def prepare(self) -> "Prepared":
        self._islands = super().islands
        return self


def policies() -> Iterator[tuple[str, SelectionPolicy]]:
    for name in selection.__all__:
        yield name, getattr(selection, name)()
    yield "Polca(ucb)", selection.Polca(priority="ucb")


def grown(size: int) -> Prepared:
    """A random tree: every program descends from one of the hundred before it."""
    rng = random.Random(size)
    elites, visits = [], {}
    for number in range(size):
        value = rng.gauss(0.5, 0.3)
        program = f"{number:064x}"
        elite = make_elite(program, sequence=number)
        parent = f"{rng.randrange(max(number - 100, 0), number):064x}" if number else ""
        interval = Interval(value, value - 0.02, value + 0.02)
        elites.append(replace(elite, fitness=interval, parents=(parent,)))
        if number % 2:
            told = rng.randrange(1, 9)
            visits[program] = Visits(
                asked=told, told=told, subtree=3 * told, scored=told, value=told * value, best=value
            )
    slots = {elite.program: f"island{n % 4}/{n}" for n, elite in enumerate(elites)}
    return Prepared(elites, visits=visits, slots=slots, turn=2 * size).prepare()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000")
    sizes = [int(size) for size in parser.parse_args().sizes.split(",")]
    print_conditions()
    populations = [grown(size) for size in sizes]
    print(f"median ms of {CALLS} choices of one parent")
    print(f"{'policy':<20}" + "".join(f"{size:>10}" for size in sizes))
    for name, policy in policies():
        row = "".join(f"{median_ms(policy, population):>10.3f}" for population in populations)
        print(f"{name:<20}{row}", flush=True)


def median_ms(policy: SelectionPolicy, population: Prepared) -> float:
    seconds = []
    for seed in range(CALLS):
        rng = random.Random(seed)
        start = time.perf_counter()
        policy.select(population, 1, rng)
        seconds.append(time.perf_counter() - start)
    return 1e3 * statistics.median(seconds)


if __name__ == "__main__":
    main()
