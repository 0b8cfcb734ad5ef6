"""Fills a database on a PostgreSQL server with a search, with the rows of `store_filling`."""

from collections.abc import Iterator
from contextlib import closing
from itertools import islice

import psycopg
from psycopg import sql

from evolve.store import Store
from tests.benchmarks.store_filling import (
    CHUNK,
    IDENTIFIED,
    ISLANDS,
    TABLES,
    Row,
    first_rows,
    fitness_of,
    parent_of,
)
from tests.store.facts import new_run


def fill_server(url: str, size: int, capacity: int) -> None:
    """A run with `size` tickets in an empty schema, each a correct program of an earlier one.

    Needs a superuser: references between rows are not checked while they are copied in.
    """
    with Store.open(url, create=True) as store:
        run = new_run(store).id
    with closing(psycopg.connect(url)) as connection:
        connection.execute("SET session_replication_role = replica")
        (blobs,) = connection.execute("SELECT max(id) FROM blob").fetchone() or (0,)
        rows = _rows(run, size, blobs)
        while chunk := list(islice(rows, CHUNK)):
            for table in TABLES:
                _copy(connection, table, [row[table] for row in chunk])
            connection.commit()
        _finish(connection, run, size, capacity)
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM (ANALYZE)")


def _rows(run: int, size: int, blobs: int) -> Iterator[dict[str, Row]]:
    best = _best(size)
    for sequence, row in enumerate(first_rows(run, size, blobs)):
        below = best[sequence]
        own = row["visit"]["own"]
        row["visit"] |= {"best": below, "top": own if below is None else max(own, below)}
        yield row


def _best(size: int) -> list[float | None]:
    """By program, the best of those that descend from it, which all come after it."""
    best: list[float | None] = [None] * size
    for number in reversed(range(size)):
        parent = parent_of(number, number + 1) - 1
        if parent != number:
            tops = (best[parent], best[number], fitness_of(number))
            best[parent] = max(top for top in tops if top is not None)
    return best


def _copy(connection: "psycopg.Connection[tuple]", table: str, rows: list[Row]) -> None:
    names = list(rows[0])
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(
        sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, names))
    )
    with connection.cursor().copy(query) as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))


def _finish(connection: "psycopg.Connection[tuple]", run: int, size: int, capacity: int) -> None:
    """Counters, the slots of the archive (the newest programs), and the next ids."""
    counts = {"run": run, "size": size, "islands": ISLANDS, "capacity": capacity}
    connection.execute(
        "UPDATE run SET asked=%(size)s, proposals=%(size)s, evaluations=%(size)s WHERE id=%(run)s",
        counts,
    )
    connection.execute("INSERT INTO run_operator VALUES (%(run)s, 'tune', %(size)s)", counts)
    connection.execute(
        "INSERT INTO archive_slot (run, slot, program, offer) "
        "SELECT run, mod(sequence, %(islands)s) || '/cell ' || sequence, program, id "
        "FROM archive_offer WHERE run = %(run)s ORDER BY id DESC LIMIT %(capacity)s",
        counts,
    )
    for table in IDENTIFIED:
        connection.execute(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}))"
        )
