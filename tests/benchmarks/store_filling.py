"""Fills a database with a search, row by row of its schema, as fast as SQLite goes."""

import hashlib
import math
import sqlite3
import struct
import zlib
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from evolve.core.program import Program, instance_digest

ISLANDS = 4
"""Slots are named as those of `archives.Islands`; to other archives it is all the same."""

CHUNK = 2_000
_REPEATS = 20
_HEAD = """BLOCK = 64


@triton.jit
def kernel(x_ptr, n_columns, block_start, BLOCK: tl.constexpr):
    total = 0.0
"""
_LINE = """
    offsets_{0} = block_start + tl.arange(0, BLOCK) * {1}
    value_{0} = tl.load(x_ptr + offsets_{0}, mask=offsets_{0} < n_columns, other={2}.0)
    total += value_{0} * {3}.{4}e-3
"""
IDENTIFIED = ("blob", "program", "instance", "ticket", "evaluation", "archive_offer")
TABLES = (
    *IDENTIFIED[:4],
    "ticket_parent",
    "visit",
    "evaluation",
    "evaluation_ratio",
    "archive_offer",
)

Row = dict[str, Any]


def distinct_source(number: int) -> str:
    """About 4 KB that no other number has, and that compresses about as well as kernels do."""
    noise = hashlib.shake_128(str(number).encode()).digest(_REPEATS * 8)
    values = struct.iter_unpack("4H", noise)
    lines = [_LINE.format(place, *value) for place, value in enumerate(values)]
    return f"# program {number}\n{_HEAD}{''.join(lines)}"


def fill(path: Path, run: int, size: int, capacity: int) -> None:
    """Let the run grow to `size` tickets, each a correct program made from an earlier one."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-300000"
        )
        (asked,) = connection.execute("SELECT asked FROM run WHERE id = ?", (run,)).fetchone()
        rows = _rows(connection, run, range(asked, size))
        while chunk := list(islice(rows, CHUNK)):
            connection.execute("BEGIN")
            for table in TABLES:
                _insert(connection, table, [row[table] for row in chunk])
            connection.execute("COMMIT")
        _count(connection, run)
        _settle(connection, run)
        _take_slots(connection, run, capacity)
        connection.executescript("PRAGMA journal_mode=WAL")


def _insert(connection: sqlite3.Connection, table: str, rows: list[Row]) -> None:
    names = list(rows[0])
    query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    connection.executemany(query, [tuple(row.values()) for row in rows])


def _rows(connection: sqlite3.Connection, run: int, sequences: range) -> Iterator[dict[str, Row]]:
    """What each step leaves behind, by table."""
    last = {
        table: connection.execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
        for table in IDENTIFIED
    }
    for count, sequence in enumerate(sequences, start=1):
        ids = {table: last[table] + count for table in IDENTIFIED}
        yield _program_rows(ids, sequence) | _step_rows(ids, run, sequence)


def first_rows(run: int, size: int, blobs: int) -> Iterator[dict[str, Row]]:
    """The rows of a run's first steps in a database that has so many blobs, and nothing else."""
    for sequence in range(size):
        ids = dict.fromkeys(IDENTIFIED, sequence + 1) | {"blob": blobs + sequence + 1}
        yield _program_rows(ids, sequence) | _step_rows(ids, run, sequence)


def _program_rows(ids: dict[str, int], number: int) -> dict[str, Row]:
    program = Program(distinct_source(number))
    data, digest = program.source.encode(), program.digest
    return {
        "blob": {
            "id": ids["blob"],
            "sha256": hashlib.sha256(data).digest(),
            "codec": "zlib",
            "bytes": zlib.compress(data, 1),
        },
        "program": {
            "id": ids["program"],
            "digest": bytes.fromhex(digest),
            "normalised": hashlib.sha256(data[::-1]).digest(),
            "source": ids["blob"],
            "language": "triton",
        },
        "instance": {
            "id": ids["instance"],
            "digest": bytes.fromhex(instance_digest(digest, {})),
            "program": ids["program"],
            "assignment": "{}",
        },
    }


def _step_rows(ids: dict[str, int], run: int, sequence: int) -> dict[str, Row]:
    speedup = math.exp(fitness_of(sequence))
    interval = {"": speedup, "_low": speedup * 0.99, "_high": speedup * 1.01}
    fitness = {end: math.log(value) for end, value in interval.items()}
    made = {"ticket": ids["ticket"], "instance": ids["instance"]}
    parent = parent_of(sequence, ids["program"])
    return {
        "ticket": {
            "id": ids["ticket"],
            "run": run,
            "sequence": sequence,
            "operator": "tune",
            "state": "told",
            "instance": ids["instance"],
            "fidelity": "search",
            "attempts": 1,
        },
        "ticket_parent": {
            "ticket": ids["ticket"],
            "role": "used",
            "position": 0,
            "program": parent,
        },
        "visit": {
            "run": run,
            "program": ids["program"],
            "parent": None if parent == ids["program"] else parent,
            "asked": 1,
            "told": 1,
            "subtree": 3,
            "own": fitness[""],
            "top": fitness[""],
        },
        "evaluation": made
        | {
            "id": ids["evaluation"],
            "status": "correct",
            "stage": 6,
            "fidelity": "search",
            "task_revision": "0" * 64,
            "device_class": "cpu-filled",
            "evaluator_version": "1",
            "custom": 1,
            "cases": "[]",
            "labels": "[]",
            "descriptors": '{"depth":2.0}',
            "durations_s": "{}",
        },
        "evaluation_ratio": {"evaluation": ids["evaluation"], "baseline": "eager"}
        | {"ratio" + end: value for end, value in interval.items()},
        "archive_offer": made
        | {"id": ids["archive_offer"], "run": run, "sequence": sequence, "operator": "tune"}
        | {"program": ids["program"], "evaluations": 1}
        | {"fitness" + end: value for end, value in fitness.items()}
        | {"descriptors": '{"depth":2.0}', "parents": "[]", "status": 2, "slot": str(sequence)},
    }


def fitness_of(sequence: int) -> float:
    """The logarithm of the speedup of a step."""
    return math.log(1.0 + sequence * 7919 % 1000 / 1000)


def parent_of(sequence: int, program: int) -> int:
    """An earlier program, or the program itself: that one has no parent."""
    return 1 + sequence * 104_729 % program


def _count(connection: sqlite3.Connection, run: int) -> None:
    (tickets,) = connection.execute("SELECT count(*) FROM ticket").fetchone()
    connection.execute(
        "UPDATE run SET asked = ?, proposals = ?, evaluations = ? WHERE id = ?",
        (tickets, tickets, tickets, run),
    )
    connection.execute(
        "INSERT OR REPLACE INTO run_operator (run, operator, proposals) VALUES (?, 'tune', ?)",
        (run, tickets),
    )


def _settle(connection: sqlite3.Connection, run: int) -> None:
    """Every program knows the best of those that descend from it, which all came after it."""
    rows = "SELECT program, parent, own FROM visit WHERE run = ? ORDER BY program DESC"
    best: dict[int, float] = {}
    changed = []
    for program, parent, own in connection.execute(rows, (run,)):
        below = best.pop(program, None)
        top = own if below is None else max(own, below)
        best[parent] = max(top, best.get(parent, top))
        if below is not None:
            changed.append((below, top, run, program))
    connection.execute("BEGIN")
    connection.executemany("UPDATE visit SET best=?, top=? WHERE run=? AND program=?", changed)
    connection.execute("COMMIT")


def _take_slots(connection: sqlite3.Connection, run: int, capacity: int) -> None:
    """The archive holds the newest programs, as many as it may."""
    connection.execute("DELETE FROM archive_slot")
    connection.execute(
        "INSERT INTO archive_slot (run, slot, program, offer) "
        "SELECT o.run, (o.sequence % ?) || '/cell ' || o.sequence, i.program, o.id "
        "FROM archive_offer o "
        "JOIN instance i ON i.id = o.instance WHERE o.run = ? ORDER BY o.id DESC LIMIT ?",
        (ISLANDS, run, capacity),
    )
