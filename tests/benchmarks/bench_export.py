"""How fast a long run is read back for training, and in how much memory.

    python -m tests.benchmarks.bench_export --sizes 1000,10000,100000

One database grows to each size (the run of `bench_store`, every step now asked of a model: a prompt
of 8 KB that nobody else has, after a shared one of 4 KB, and a reply of 4 KB); then a fresh process
for each way of reading goes through all of it.
"""

import argparse
import hashlib
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path

from evolve.store import Store
from evolve.trajectories.rewards import pipeline
from evolve.trajectories.rewards.rescoring import rescore
from evolve.trajectories.steps import steps
from evolve.trajectories.tally import Tally
from evolve.trajectories.views.recipes import find_recipe
from tests.benchmarks.bench_store import grow
from tests.benchmarks.conditions import memory_mb, print_conditions
from tests.benchmarks.store_filling import distinct_source

_CHUNK = 2000
_PARAMETERS = json.dumps(
    {"max_tokens": None, "temperature": 0.6, "top_p": None, "seed": None,
     "reasoning_effort": None, "stop": []}
)  # fmt: skip


def main() -> None:
    options = _options()
    if options.measure:
        print(json.dumps(measure(options.measure, options.way)))
        return
    print_conditions()
    print(f"{'steps':>9} {'way':>12} {'rows':>9} {'seconds':>8} {'steps/s':>8} {'memory MB':>10}")
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "bench.db"
        for size in map(int, options.sizes.split(",")):
            grow(path, size)
            converse(path)
            for way in WAYS:
                row = _in_fresh_process(path, way)
                print(
                    f"{size:>9} {way:>12} {row['rows']:>9} {row['seconds']:>8.1f} "
                    f"{size / row['seconds']:>8.0f} {row['memory_mb']:>10.0f}",
                    flush=True,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="1000,10000", help="ascending")
    parser.add_argument("--dir", help="folder for the database (ten GB at 10^6)")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    return parser.parse_args()


def _in_fresh_process(path: Path, way: str) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.benchmarks.bench_export"]
    command += ["--measure", str(path), "--way", way]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(answer.stdout)
    return found


def converse(path: Path) -> None:
    """Give every step that has none a request, its messages, and the reply."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF")
        shared = _blobs(connection, ["You write kernels. " * 200])[0]
        tickets = connection.execute(
            "SELECT id FROM ticket WHERE id NOT IN (SELECT ticket FROM request) ORDER BY id"
        )
        numbers = iter([identity for (identity,) in tickets])
        while chunk := list(islice(numbers, _CHUNK)):
            connection.execute("BEGIN")
            _ask(connection, chunk, shared)
            connection.execute("COMMIT")
        connection.executescript("PRAGMA journal_mode=WAL")


def _ask(connection: sqlite3.Connection, tickets: list[int], shared: int) -> None:
    prompts = _blobs(
        connection, (f"{n}\n{distinct_source(n)}{distinct_source(-n)}" for n in tickets)
    )
    replies = _blobs(connection, (f"Faster:\n{distinct_source(n)}" for n in tickets))
    connection.executemany(
        "INSERT INTO request (id, run, ticket, round, operator, purpose, key, sample, model, "
        "parameters, memo, reading) VALUES (?, 1, ?, 0, 'tune', 'propose', ?, 0, 'm', ?, '{}', "
        "'program')",
        [(n, n, hashlib.sha256(b"%d" % n).digest(), _PARAMETERS) for n in tickets],
    )
    connection.executemany(
        "INSERT INTO request_message (request, position, role, content) VALUES (?, ?, ?, ?)",
        [
            row
            for number, prompt in zip(tickets, prompts, strict=True)
            for row in ((number, 0, "system", shared), (number, 1, "user", prompt))
        ],
    )
    connection.executemany(
        "INSERT INTO call (request, status, tokens_reserved, model, usage, cost_usd, attempts, "
        "reply) VALUES (?, 'completed', 9000, 'm', '{\"prompt\": 3000, \"completion\": 1000}', "
        "0.01, 1, ?)",
        zip(tickets, replies, strict=True),
    )


def _blobs(connection: sqlite3.Connection, texts: Iterable[str]) -> list[int]:
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM blob").fetchone()
    rows = [
        (last + count, hashlib.sha256(data).digest(), zlib.compress(data, 1))
        for count, data in enumerate((text.encode() for text in texts), start=1)
    ]
    connection.executemany(
        "INSERT OR IGNORE INTO blob (id, sha256, codec, bytes) VALUES (?, ?, 'zlib', ?)", rows
    )
    return [identity for identity, _, _ in rows]


def measure(path: Path, way: str) -> dict[str, float]:
    """Go through the whole run in one way."""
    with Store.open(path, read_only=True) as store:
        start = time.perf_counter()
        rows = sum(1 for _ in WAYS[way](store, store.run().id))
        return {
            "rows": rows,
            "seconds": time.perf_counter() - start,
            "memory_mb": memory_mb(),
        }


def _recipe(name: str, kind: str, store: Store, run: int) -> Iterator[object]:
    return find_recipe(name).rows(store, [run], kind, tally=Tally())


WAYS = {
    "steps": lambda store, run: steps(store, [run]),
    "no texts": lambda store, run: steps(store, [run], texts=False),
    "rewards": lambda store, run: rescore(store, run, [pipeline("kevin@1+trloo@2")]).sequences,
    "kernel_smith": lambda store, run: _recipe("kernel_smith@2", "supervised", store, run),
    "siblings": lambda store, run: _recipe("siblings@1", "preference", store, run),
}

if __name__ == "__main__":
    main()
