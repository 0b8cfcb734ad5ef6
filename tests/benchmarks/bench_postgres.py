"""PostgreSQL beside SQLite: what a candidate costs, how long a resume takes, many writers at once.

    python -m tests.benchmarks.bench_postgres --sizes 100,1000,10000

The server is started here, on the same cores, and flushes each commit to the disk. Candidates are
those of `bench_engine`: ask, select, store and offer, no evaluation, in a fresh process. Writers
are processes that take whole steps of a run of their own (`take_step`: five transactions), without
an engine; the longest step says how long one waits for the others.
"""

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

from evolve.store import Store
from tests.benchmarks.bench_engine import STEPS, measured
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import print_conditions
from tests.store.facts import SmallArchive, new_run, program, take_step
from tests.store.servers import Server, running_server

FORK = multiprocessing.get_context("fork")


def main() -> None:
    options = _options()
    print_conditions()
    with (
        running_server(durable=True) as server,
        tempfile.TemporaryDirectory(dir=options.dir) as folder,
    ):
        print(server.execute("SELECT version()")[0][0].partition(" on ")[0], end="\n\n")
        if options.sizes:
            _candidates(server, Path(folder), [int(size) for size in options.sizes.split(",")])
        _writers(lambda: server.new_database(), "postgresql", options)
        _writers(lambda: f"{tempfile.mkdtemp(dir=folder)}/searches.db", "sqlite", options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000", help="ascending; empty: none")
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--steps", type=int, default=60, help="of each writer")
    parser.add_argument("--dir", help="folder for the databases (several GB at 10^6)")
    return parser.parse_args()


def _candidates(server: Server, folder: Path, sizes: list[int]) -> None:
    print(f"{STEPS} candidates of 4 KB at each size")
    print("   stored  back end    median ms   p95 ms   cpu ms  ready s   copy s")
    for size in sizes:
        path = folder / "bench.db"
        grow(path, size)
        url = server.new_database()
        began = time.perf_counter()
        with Store.open(path) as source, Store.open(url, create=True) as target:
            source.copy_to(target)
        copied_s = time.perf_counter() - began
        server.execute("ANALYZE", url)
        _row(size, "sqlite", measured(str(path)), 0.0)
        _row(size, "postgresql", measured(url), copied_s)
    print()


def _row(size: int, kind: str, row: dict[str, float], copied_s: float) -> None:
    print(
        f"{size:>9}  {kind:<10} {row['median_ms']:>10.2f} {row['p95_ms']:>8.2f} "
        f"{row['cpu_ms']:>8.2f} {row['ready_s']:>8.2f} {copied_s:>8.1f}",
        flush=True,
    )


def _writers(make: Callable[[], str], kind: str, options: argparse.Namespace) -> None:
    """One writer, then all of them, for as many steps each."""
    for count in (1, options.writers):
        location = make()
        Store.open(location, create=True).close()
        pipes = [FORK.Pipe() for _ in range(count)]
        processes = [
            FORK.Process(target=_write, args=(location, number, options.steps, theirs))
            for number, (_, theirs) in enumerate(pipes)
        ]
        began = time.perf_counter()
        for process in processes:
            process.start()
        longest = [ours.recv() for ours, _ in pipes]
        took = time.perf_counter() - began
        for process in processes:
            process.join()
        with Store.open(location, read_only=True) as store:
            stored = [store.next_sequence(run.id) for run in store.runs()]
        assert stored == [options.steps] * count, stored
        print(
            f"{kind:<10} {count:>3} writers: {count * options.steps / took:>7.1f} steps a second, "
            f"the longest step {max(longest):.2f} s, nothing lost",
            flush=True,
        )


def _write(location: str, number: int, steps: int, results: Connection) -> None:
    """Take steps of a run; three in four programs are those of other runs too."""
    longest = 0.0
    with Store.open(location) as store:
        run = new_run(store, f"run-{number}").id
        store.claim(run)
        archive = SmallArchive()
        for step in range(1, steps + 1):
            began = time.perf_counter()
            own = 1000 * (number + 1) if step % 4 == 0 else 0
            parents = (program(1).digest,) if step > 1 else ()
            take_step(store, run, archive, own + step, parents=parents)
            longest = max(longest, time.perf_counter() - began)
        store.release(run, "finished", "as many as asked for")
    results.send(longest)


if __name__ == "__main__":
    main()
