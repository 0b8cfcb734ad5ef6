"""PostgreSQL beside SQLite: what a candidate costs, how long a resume takes, many writers at once.

    python -m tests.benchmarks.bench_postgres --sizes 100,1000,10000

The server is started here, on the same cores, and flushes each commit to the disk. Candidates are
those of `bench_engine`: ask, select, store and offer, no evaluation, in a fresh process. Sizes
from 10^5 on are filled in on the server at once, without a SQLite database and without a copy.
Writers are processes that take whole steps of a run of their own (`take_step`: five transactions),
without an engine. The longest step includes the waits for a core; the longest wait for a lock is
that for another writer, as the server lists it fifty times a second.
"""

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psycopg

from evolve.store import Store
from tests.benchmarks.bench_engine import CAPACITY, STEPS, measured
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.server_filling import fill_server
from tests.store.facts import SmallArchive, new_run, program, take_step
from tests.store.servers import Server, running_server

FILLED_AT_ONCE = 100_000
_WAIT = "SELECT extract(epoch FROM max(clock_timestamp() - waitstart)) FROM pg_locks"
_DEADLOCKS = "SELECT sum(deadlocks) FROM pg_stat_database"

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
        with _lock_waits(server) as waits:
            _writers(lambda: server.new_database(), "postgresql", options)
        deadlocks = server.execute(_DEADLOCKS)[0][0]
        print(f"the longest wait for a lock {max(waits):.2f} s, {deadlocks} deadlocks")
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
        url = server.new_database()
        if size >= FILLED_AT_ONCE:
            fill_server(url, size, CAPACITY)
            _row(size, "postgresql", measured(url), 0.0)
            continue
        path = folder / "bench.db"
        grow(path, size)
        copied_s = _copied(path, url)
        server.execute("ANALYZE", url)
        _row(size, "sqlite", measured(str(path)), 0.0)
        _row(size, "postgresql", measured(url), copied_s)
    print()


def _copied(path: Path, url: str) -> float:
    """Seconds that `evolve db copy` takes."""
    began = time.perf_counter()
    with Store.open(path) as source, Store.open(url, create=True) as target:
        source.copy_to(target)
    return time.perf_counter() - began


def _row(size: int, kind: str, row: dict[str, float], copied_s: float) -> None:
    print(
        f"{size:>9}  {kind:<10} {row['median_ms']:>10.2f} {row['p95_ms']:>8.2f} "
        f"{row['cpu_ms']:>8.2f} {row['ready_s']:>8.2f} {copied_s:>8.1f}",
        flush=True,
    )


@contextmanager
def _lock_waits(server: Server) -> Iterator[list[float]]:
    """The longest wait for a lock at each moment, in seconds."""
    waits, ended = [0.0], threading.Event()

    def sample() -> None:
        with closing(psycopg.connect(server.url, autocommit=True)) as connection:
            while not ended.wait(0.02):
                row = connection.execute(_WAIT).fetchone()
                waits.append(float(row[0] or 0.0) if row else 0.0)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield waits
    finally:
        ended.set()
        thread.join()


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
