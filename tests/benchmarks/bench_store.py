"""What the store costs per candidate, to reopen, and in memory, as a search grows.

    python -m tests.benchmarks.bench_store --sizes 100,1000,10000,100000

One database grows to each size in turn (filled through its schema, without the cost of the public
API), then a fresh process opens it and takes whole steps through the public API, as the engine
does: normalise the child's text, look up the parent's source and whether the child is new, ask,
propose, start_evaluation, evaluated, tell; with a full archive.
"""

import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from evolve.core.program import Program
from evolve.core.protocols import AddStatus, Elite, Offer, Proposal
from evolve.store import Store
from evolve.store.tables.programs import normalised_digest
from tests.benchmarks.store_filling import distinct_source, fill
from tests.store.facts import evaluation, new_run

CAPACITY = 10_000
STEPS = 400
PARTS = ("normalise", "facts", "ask", "propose", "start", "evaluated", "tell")


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(measure(options.measure, options.steps)))
        return
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        _print_conditions(options.steps)
        for size in sizes:
            filled_s = grow(path, size)
            row = {"stored": size} | _measure_in_fresh_process(path, options.steps)
            row |= {"file_mb": path.stat().st_size / 1e6, "fill_s": filled_s}
            _print_row(row, titled=size == sizes[0])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000,100000", help="ascending")
    parser.add_argument("--steps", type=int, default=STEPS, help="candidates timed at each size")
    parser.add_argument("--dir", help="folder for the database (several GB at 10^6)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def grow(path: Path, size: int) -> float:
    """Fill the database up to `size` programs; returns the seconds it took."""
    with Store.open(path, create=True) as store:
        run = store.runs()[0] if store.runs() else new_run(store)
    start = time.perf_counter()
    fill(path, run.id, size, CAPACITY)
    return time.perf_counter() - start


def _measure_in_fresh_process(path: Path, steps: int) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_store"]
    command += ["--measure", str(path), "--steps", str(steps)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def measure(path: Path, steps: int) -> dict[str, float]:
    """Open, be ready to ask, take steps; times in ms, memory in MB."""
    idle = _memory_mb()
    start = time.perf_counter()
    store = Store.open(path)
    run = store.run().id
    store.claim(run)
    store.progress(run)
    store.open_tickets(run)
    held = store.slots(run)
    opened = time.perf_counter() - start
    cpu = time.process_time()
    taken = list(zip(*_steps(store, run, held, steps), strict=True))
    cpu = time.process_time() - cpu
    store.close()
    totals = sorted(map(sum, zip(*taken, strict=True)))
    figures = {
        part: 1e3 * statistics.median(times) for part, times in zip(PARTS, taken, strict=True)
    }
    return figures | {
        "store": sum(figures[part] for part in PARTS[1:]),
        "total": 1e3 * statistics.median(totals),
        "p95": 1e3 * totals[int(0.95 * len(totals))],
        "cpu": 1e3 * cpu / steps,
        "open_s": opened,
        "slots": len(held),
        "idle_mb": idle,
        "memory_mb": _memory_mb(),
    }


def _steps(
    store: Store, run: int, held: dict[str, Elite], count: int
) -> Iterator[tuple[float, ...]]:
    """Whole steps; yields the seconds spent in each part."""
    draw = random.Random(count)
    places = sorted(held)
    first = store.progress(run).proposals
    for number in range(count):
        place = draw.choice(places)
        parent = held[place]
        proposal = Proposal(
            program=Program(distinct_source(first + number)), parents=(parent.program,)
        )
        times = (draw.uniform(0.9, 1.1) for _ in range(120))
        judged = replace(
            evaluation(1 + draw.random()), samples={"large": {"candidate": list(times)}}
        )
        clock = [time.perf_counter()]
        normalised_digest(proposal.program.source)
        clock.append(time.perf_counter())
        store.source(parent.program)
        store.trials(run, proposal.program.digest)
        store.near_duplicate_of(run, proposal.program)
        clock.append(time.perf_counter())
        ticket = store.ask(run, "tune", proposal.parents)
        clock.append(time.perf_counter())
        ticket = store.propose(ticket, proposal)
        clock.append(time.perf_counter())
        store.start_evaluation(ticket)
        clock.append(time.perf_counter())
        ticket = store.evaluated(ticket, judged)
        clock.append(time.perf_counter())
        fitness = judged.fitness("eager")
        assert fitness is not None
        elite = replace(
            parent,
            program=proposal.program.digest,
            assignment={},
            fitness=fitness,
            sequence=ticket.sequence,
        )
        store.tell(ticket, elite, Offer(AddStatus.IMPROVED, place, parent.program))
        clock.append(time.perf_counter())
        held[place] = elite
        yield tuple(after - before for before, after in pairwise(clock))


def _memory_mb() -> float:
    """The most memory that this program ever had resident (`ru_maxrss` counts the parent's too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
    return int(peak) / 1024


def _print_conditions(steps: int) -> None:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}, Python {platform.python_version()},", end=" ")
    print(f"SQLite {sqlite3.sqlite_version}; programs of {len(distinct_source(1))} bytes,", end=" ")
    print(f"archive of at most {CAPACITY}, medians of {steps} candidates, ms per candidate;")
    print("store is the sum of the parts without normalise, total the median of all,", end=" ")
    print("cpu the mean processor time with making the source and the samples;")
    print("rows that were filled in have no samples, measured candidates have 120")
    print()


def _print_row(row: dict[str, float], *, titled: bool) -> None:
    if titled:
        print(" ".join(f"{name:>9}" for name in row))
    print(" ".join(f"{value:>9.4g}" for value in row.values()), flush=True)


if __name__ == "__main__":
    main()
