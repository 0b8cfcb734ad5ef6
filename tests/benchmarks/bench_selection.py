"""What choosing one parent costs, for every selection policy that ships.

    python -m tests.benchmarks.bench_selection --sizes 100,1000,10000,100000

The database of `bench_store` at each size, opened by the engine with a full archive of 10^4
programs (fewer where fewer are stored) on four islands, which is all that policies see. What the
first choice has to read (counts, descent) is not in the median. In brackets is the median processor
time, which other work on the machine disturbs less.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from archives import Islands, TopK
from evolve.core.protocols import Population, SelectionPolicy
from evolve.search import selection
from evolve.search.engine import Search
from evolve.search.schedule import Scheduled
from evolve.store import Store
from operators import Seed
from tests.benchmarks.bench_store import CAPACITY, grow
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.store_filling import ISLANDS

CALLS = 41


def policies() -> Iterator[tuple[str, SelectionPolicy]]:
    for name in selection.__all__:
        yield name, getattr(selection, name)()
    yield "Polca(ucb)", selection.Polca(priority="ucb")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000", help="ascending")
    parser.add_argument("--dir", help="folder for the database")
    options = parser.parse_args()
    print_conditions()
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        found = []
        for size in sizes:
            grow(path, size)
            found.append(measure(path))
    print(f"median ms of {CALLS} choices of one parent")
    print(f"{'programs stored':<18}" + "".join(f"{size:>17}" for size in sizes))
    for name in found[0]:
        cells = (f"{wall:.3f} ({cpu:.3f})" for wall, cpu in (each[name] for each in found))
        print(f"{name:<18}" + "".join(f"{cell:>17}" for cell in cells))


def measure(path: Path) -> dict[str, tuple[float, float]]:
    """The median time of a choice by policy, and the median processor time."""
    with Store.open(path) as store:
        search = Search(
            store=store,
            run=store.run(),
            archive=Islands(of=TopK, capacity=CAPACITY, count=ISLANDS, most=ISLANDS),
            selection=selection.Greedy(),
            operators={"seed": Scheduled(operator=Seed())},
        )
        assert len(search.population.islands) == ISLANDS
        return {name: median_ms(policy, search.population) for name, policy in policies()}


def median_ms(policy: SelectionPolicy, population: Population) -> tuple[float, float]:
    wall, cpu = [], []
    for seed in range(CALLS):
        rng = random.Random(seed)
        start, began = time.perf_counter(), time.process_time()
        policy.select(population, 1, rng)
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - began)
    return 1e3 * statistics.median(wall), 1e3 * statistics.median(cpu)


if __name__ == "__main__":
    main()
