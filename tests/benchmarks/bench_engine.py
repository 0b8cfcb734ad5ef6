"""What the whole framework costs per candidate: ask, select, store and offer, no evaluation.

    python -m tests.benchmarks.bench_engine --sizes 100,1000,10000

The database of `bench_store` at each size, opened by the engine in a fresh process, with a full
archive of 10^4 programs (fewer where fewer are stored). Every candidate is a new program of 4 KB,
with a speedup of the same law as those that are stored. `cpu` is the median processor time, which
other work on the machine disturbs less.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from archives import TopK
from evolve.core.program import Program
from evolve.core.protocols import Context, Proposal
from evolve.search.engine import Search
from evolve.search.execution.garbage import collect_seldom
from evolve.search.schedule import Scheduled
from evolve.search.selection import Tournament
from evolve.store import Store
from tests.benchmarks.bench_store import CAPACITY, grow
from tests.benchmarks.conditions import memory_mb, print_conditions
from tests.benchmarks.store_filling import distinct_source
from tests.store.facts import evaluation

STEPS = 300


class Fresh:
    """Proposes a program that was never seen, as a child of the selected parent."""

    parents = 1

    def propose(self, context: Context) -> Proposal:
        parent = context.parents[0]
        context.facts.source(parent.program)  # every real operator reads its parent
        source = distinct_source(1_000_000_000 + context.sequence)
        return Proposal(program=Program(source), parents=(parent.program,))


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    print_conditions()
    print(f"archive topk of {CAPACITY}, tournament selection, {STEPS} candidates of 4 KB a size")
    print("   stored  median ms   p95 ms   cpu ms  ready s  memory MB")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        for size in map(int, options.sizes.split(",")):
            grow(path, size)
            row = measured(str(path))
            print(
                f"{size:>9} {row['median_ms']:>10.2f} {row['p95_ms']:>8.2f} "
                f"{row['cpu_ms']:>8.2f} {row['ready_s']:>8.2f} {row['memory_mb']:>10.0f}",
                flush=True,
            )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000", help="ascending")
    parser.add_argument("--dir", help="folder for the database (several GB at 10^6)")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    return parser.parse_args()


def measured(location: str) -> dict[str, float]:
    """`measure` in a fresh process."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_engine", "--measure", location]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    row: dict[str, float] = json.loads(answer.stdout)
    return row


def resumed(store: Store) -> Search:
    """The only run of the store, claimed and ready for the next candidate."""
    run = store.run()
    store.claim(run.id)
    search = Search(
        store=store,
        run=run,
        archive=TopK(capacity=CAPACITY),
        selection=Tournament(size=4),
        operators={"fresh": Scheduled(operator=Fresh())},
    )
    search.open_tickets()
    return search


def measure(location: str) -> dict[str, float]:
    """Resume the run, take steps; the verdicts are made outside of what is timed."""
    collect_seldom()  # as a pipeline does
    start = time.perf_counter()
    store = Store.open(location)
    search = resumed(store)
    ready_s = time.perf_counter() - start
    draw = random.Random(STEPS)
    seconds, cpu = [], []
    for _ in range(STEPS):
        verdict = evaluation(1.0 + draw.random())
        start, began = time.perf_counter(), time.process_time()
        ticket = search.ask()
        assert ticket is not None
        search.request(ticket)
        store.start_evaluation(ticket)
        search.tell(ticket, verdict)
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - began)
    return {
        "ready_s": ready_s,
        "median_ms": 1e3 * statistics.median(seconds),
        "cpu_ms": 1e3 * statistics.median(cpu),
        "p95_ms": 1e3 * statistics.quantiles(seconds, n=20)[-1],
        "memory_mb": memory_mb(),
    }


if __name__ == "__main__":
    main()
