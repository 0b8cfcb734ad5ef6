"""Where the time of a candidate goes: round trips, flushed commits, Python.

    python -m tests.benchmarks.bench_offer --size 100000

The candidates of `bench_engine` (ask, select, store and offer, no evaluation), on a PostgreSQL
server of this machine that flushes each commit, and on SQLite, each with `size` programs. For each
part of a candidate: messages to the server and answers waited for, commits among them, how long
each wait took, and this process's own processor time. Medians are of all candidates; the sum of
medians is not the median of sums. Beside it stand the floors of this machine: an empty statement,
a commit of one row, a flush of 8 KiB by the system alone.
"""

import argparse
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from evolve.core.evaluation import Evaluation
from evolve.search.execution.garbage import collect_seldom
from evolve.store import Store
from tests.benchmarks.bench_engine import resumed
from tests.benchmarks.bench_store import CAPACITY, grow
from tests.benchmarks.conditions import print_conditions
from tests.benchmarks.server_filling import fill_server
from tests.store.facts import evaluation
from tests.store.servers import Server, running_server

FLUSHED_BYTES = 8192
PARTS = ("ask", "request", "start", "tell")
COLUMNS = ("wall", "processor", "round trips", "in them", "of them commits", "in those")


class Waits:
    """Counts what the driver waits for: all of it goes through `psycopg.Connection.wait`."""

    def __init__(self) -> None:
        self.trips = self.commits = 0
        self.trip_s = self.commit_s = 0.0
        self._in_commit = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        wait, commit = psycopg.Connection.wait, psycopg.Connection.commit

        def waiting(connection: Any, steps: Any, *words: Any) -> Any:
            waited: list[object] = []
            began = time.perf_counter()
            try:
                return wait(connection, _noting(steps, waited), *words)
            finally:
                if waited:
                    self._count(time.perf_counter() - began)

        def committing(connection: Any) -> None:
            self._in_commit = True
            try:
                commit(connection)
            finally:
                self._in_commit = False

        psycopg.Connection.wait, psycopg.Connection.commit = waiting, committing
        try:
            yield
        finally:
            psycopg.Connection.wait, psycopg.Connection.commit = wait, commit

    def _count(self, took_s: float) -> None:
        self.trips += 1
        self.trip_s += took_s
        self.commits += self._in_commit
        self.commit_s += took_s if self._in_commit else 0.0

    def now(self) -> tuple[float, ...]:
        return (
            1e3 * time.perf_counter(),
            1e3 * time.process_time(),
            self.trips,
            1e3 * self.trip_s,
            self.commits,
            1e3 * self.commit_s,
        )


def _noting(steps: Generator[Any, Any, Any], waited: list[object]) -> Generator[Any, Any, Any]:
    """The driver's steps; it yields where it waits for the server, which some calls never do."""
    try:
        wish = next(steps)
        while True:
            waited.append(wish)
            wish = steps.send((yield wish))
    except StopIteration as end:
        return end.value


def candidates(location: str, count: int) -> dict[str, list[tuple[float, ...]]]:
    """What each part of each candidate took, in the order of COLUMNS; times in ms."""
    collect_seldom()
    waits, rows, draw = Waits(), defaultdict(list), random.Random(count)
    with Store.open(location) as store, waits.counted():
        search = resumed(store)
        for _ in range(count):
            verdict: Evaluation = evaluation(1.0 + draw.random())
            marks = [waits.now()]
            ticket = search.ask()
            marks.append(waits.now())
            search.request(ticket)
            marks.append(waits.now())
            store.start_evaluation(ticket)
            marks.append(waits.now())
            search.tell(ticket, verdict)
            marks.append(waits.now())
            pairs = [*zip(PARTS, marks, marks[1:], strict=False), ("all", marks[0], marks[-1])]
            for part, before, after in pairs:
                rows[part].append(tuple(b - a for a, b in zip(before, after, strict=True)))
    return rows


def tell(name: str, rows: dict[str, list[tuple[float, ...]]]) -> None:
    print(f"\n{name}, {len(rows['all'])} candidates, medians (times in ms)")
    print(f"{'':8}" + "".join(f"{column:>16}" for column in COLUMNS))
    for part, each in rows.items():
        medians = (statistics.median(column) for column in zip(*each, strict=True))
        print(f"{part:8}" + "".join(f"{median:>16.2f}" for median in medians), flush=True)


def floors(server: Server, folder: Path, count: int = 200) -> None:
    """The least that a round trip, a flushed commit and a flush take here."""
    with closing(psycopg.connect(server.new_database(), autocommit=True)) as connection:
        connection.execute("CREATE TABLE floor (number integer)")
        _floor("an empty statement", lambda: connection.execute("SELECT 1", prepare=True), count)
        insert = "INSERT INTO floor VALUES (1)"
        _floor("a row and its commit", lambda: connection.execute(insert, prepare=True), count)
        connection.execute("SET synchronous_commit = off")
        _floor("without a flush", lambda: connection.execute(insert, prepare=True), count)
    with (folder / "flushed").open("wb", buffering=0) as file:

        def flush() -> None:
            file.write(bytes(FLUSHED_BYTES))
            os.fdatasync(file.fileno())

        _floor("8 KiB and fdatasync", flush, count)


def _floor(name: str, once: Callable[[], object], count: int) -> None:
    took, used = [], time.process_time()
    for _ in range(count):
        began = time.perf_counter()
        once()
        took.append(1e3 * (time.perf_counter() - began))
    used = 1e3 * (time.process_time() - used) / count
    cuts = statistics.quantiles(took, n=20)
    print(
        f"{name:22}{statistics.median(took):7.2f} ms, 5th percentile {cuts[0]:.2f}, 95th "
        f"percentile {cuts[18]:.2f}; processor {used:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000, help="programs that are stored")
    parser.add_argument("--candidates", type=int, default=300)
    parser.add_argument("--dir", help="folder for the SQLite database (500 MB at 10^5)")
    options = parser.parse_args()
    print_conditions()
    with (
        running_server(durable=True) as server,
        tempfile.TemporaryDirectory(dir=options.dir) as folder,
    ):
        floors(server, Path(folder))
        url, path = server.new_database(), Path(folder) / "bench.db"
        fill_server(url, options.size, CAPACITY)
        tell("PostgreSQL", candidates(url, options.candidates))
        floors(server, Path(folder))
        grow(path, options.size)
        tell("SQLite", candidates(str(path), options.candidates))
    print_conditions()


if __name__ == "__main__":
    main()
