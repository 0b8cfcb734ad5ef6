"""What an offer to an archive costs as programs come in, and what a restart costs.

    python -m tests.benchmarks.bench_archives --offered 100,1000,10000,100000
    python -m tests.benchmarks.bench_archives --offered 1000000 --archives topk    # a minute each

Every archive has the capacity of `--capacity` and is offered one program after the other: children
of held programs, nine in ten of them new, descriptors as the judge has them. At each count the last
offers before it are timed one by one. `restore` is a restart with what is held at the last count.
"""

import argparse
import base64
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from archives import Islands, MapElites, Novelty, Pareto, Priority, TopK, Tree
from evolve.core.protocols import Archive, Elite
from evolve.testing.parts import make_elite
from tests.benchmarks.conditions import print_conditions

TIMED = 500  # offers, the last ones before each count
FINE = {  # more cells than any capacity
    "compile_s": [number / 20 for number in range(101)],
    "shared_bytes": [float(number) for number in range(0, 200_001, 2_000)],
}
ARCHIVES: dict[str, Callable[[int], Archive]] = {
    "topk": lambda capacity: TopK(capacity=capacity),
    "map_elites": lambda capacity: MapElites(capacity=capacity, axes=FINE),
    "priority ucb": lambda capacity: Priority(capacity=capacity, priority="ucb"),
    "tree": lambda capacity: Tree(capacity=capacity),
    "pareto": lambda capacity: Pareto(capacity=capacity),
    "islands of map_elites": lambda capacity: Islands(
        of=partial(MapElites, axes=FINE), capacity=capacity
    ),
    "novelty of topk": lambda capacity: Novelty(of=TopK, capacity=capacity),
}


def main() -> None:
    options = _options()
    counts = [int(count) for count in options.offered.split(",")]
    print_conditions()
    print(f"capacity {options.capacity}; ms per offer: median (99th percentile)")
    print(_line("archive", [*(f"at {count}" for count in counts), "held", "restore ms"]))
    for name in options.archives.split(",") if options.archives else ARCHIVES:
        archive = ARCHIVES[name](options.capacity)
        cells = [_cell(times) for times in timed(archive, counts)]
        start = time.perf_counter()
        archive.restore(archive.slots())
        restored = (time.perf_counter() - start) * 1e3
        print(_line(name, [*cells, str(len(archive.slots())), f"{restored:.0f}"]), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offered", default="100,1000,10000,100000", help="ascending")
    parser.add_argument("--capacity", type=int, default=10_000)
    parser.add_argument("--archives", help=f"some of {', '.join(ARCHIVES)}")
    return parser.parse_args()


def timed(archive: Archive, counts: list[int]) -> Iterator[list[float]]:
    """Seconds of each of the last offers before each count."""
    times: list[float] = []
    for number, elite in enumerate(stream(counts[-1]), 1):
        start = time.perf_counter()
        archive.offer(elite)
        times.append(time.perf_counter() - start)
        if number in counts:
            yield times[-min(TIMED, number // 2) :]
            times = []


def stream(count: int) -> Iterator[Elite]:
    """Programs that slowly get better; one in ten comes again, measured once more."""
    rng = random.Random(0)
    for number in range(count):
        again = number and rng.random() < 0.1
        program = rng.randrange(max(0, number - 5_000), number) if again else number
        elite = make_elite(
            f"program-{program}",
            speedup=math.exp(rng.gauss(math.log1p(number) / 5, 0.3)),
            sequence=number,
            descriptors=_descriptors(rng),
        )
        parents = (f"program-{rng.randrange(max(0, program - 1_000), program)}",) if program else ()
        yield replace(elite, parents=parents, evaluations=2 if again else 1)


def _descriptors(rng: random.Random) -> dict[str, float | str]:
    fingerprint = rng.randbytes(128)
    return {
        "worst_case": rng.gauss(0, 0.5),
        "precision_path": rng.choice(["fp32", "tf32", "half"]),
        "shared_bytes": float(rng.randrange(0, 200_000)),
        "compile_s": rng.uniform(0.1, 5.0),
        "sketch": base64.b64encode(fingerprint).decode(),
    }


def _cell(times: list[float]) -> str:
    high = statistics.quantiles(times, n=100)[98]
    return f"{statistics.median(times) * 1e3:.3f} ({high * 1e3:.2f})"


def _line(name: str, cells: list[str]) -> str:
    return f"{name:22}" + "".join(f"{cell:>17}" for cell in cells)


if __name__ == "__main__":
    main()
