"""A whole database copied into an empty one of any kind, with all ids."""

from pathlib import Path

from sqlalchemy import Connection, Table, func, insert, select, text

from evolve.core.errors import UsageError
from evolve.store.database import schema
from evolve.store.database.backend import Database
from evolve.store.tables import audit_log

_PAGE = 1000
_TABLES = [table for table in schema.metadata.sorted_tables if table is not schema.lease]


def copy(source: Database, target: Database) -> int:
    """Copy all runs, in one state of the source, all or nothing; returns how many rows.

    Raises:
        UsageError: the target holds runs already.
    """
    return target.write_alone(_fill, source, target.location)


def _fill(connection: Connection, source: Database, location: str) -> int:
    for table, rows_of in ((schema.run, "runs"), (schema.audit_log, "an audit log")):
        if connection.execute(select(table.c.id)).first():
            raise UsageError(f"{location} holds {rows_of} already; copy into a new database")
    rows = source.read(_pour, connection)
    audit_log.add(connection, "copied", detail=f"from {source.location}")
    return rows


def _pour(source: Connection, target: Connection) -> int:
    rows = sum(_copied(table, source, target) for table in _TABLES)
    if target.dialect.name == "postgresql":
        for table in _TABLES:
            _count_on(table, target)
    return rows


def _copied(table: Table, source: Connection, target: Connection) -> int:
    keys = list(table.primary_key)
    found = source.execution_options(yield_per=_PAGE).execute(select(table).order_by(*keys))
    count = 0
    for page in found.mappings().partitions(_PAGE):
        target.execute(insert(table), [dict(row) for row in page])
        count += len(page)
    return count


def _count_on(table: Table, target: Connection) -> None:
    """Let new ids follow those that were copied."""
    if "id" in table.c:
        last = target.execute(select(func.max(table.c.id))).scalar()
        if last is not None:
            sequence = text("SELECT setval(pg_get_serial_sequence(:of, 'id'), :last)")
            target.execute(sequence, {"of": table.name, "last": last})


def to_file(source: Database, target: Path) -> None:
    """Copy into a new SQLite file, which appears when it is whole.

    Raises:
        UsageError: the target exists or cannot be written.
    """
    from evolve.store.sqlite.database import SqliteDatabase

    if target.exists():
        raise UsageError(f"{target} exists already; choose another path for the backup")
    partial = target.with_name(target.name + ".partial")
    made = SqliteDatabase(partial, create=True)
    try:
        copy(source, made)
    finally:
        made.close()
    partial.rename(target)
