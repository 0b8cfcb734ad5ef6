"""Looking after a file: backup, size, pruning."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from evolve.core.errors import UsageError
from evolve.core.records import Pruned
from evolve.store.maintenance import UNUSED_BLOBS, strip

if TYPE_CHECKING:
    from evolve.store.sqlite.database import SqliteDatabase


def backup(database: "SqliteDatabase", target: Path) -> None:
    """Copy the database as it stands, also while a search writes to it.

    Raises:
        UsageError: the target exists or cannot be written.
    """
    if target.exists():
        raise UsageError(f"{target} exists already; choose another path for the backup")
    partial = target.with_name(target.name + ".partial")
    with database.driver() as source:
        try:
            with closing(sqlite3.connect(partial)) as copy:
                source.backup(copy)
        except sqlite3.Error as error:
            partial.unlink(missing_ok=True)
            raise UsageError(
                f"cannot write the backup {target} ({error}); choose another place"
            ) from error
    partial.rename(target)


def size(connection: Connection) -> dict[str, int]:
    """Bytes of the file's pages."""
    pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    page_size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    return {"records": pages * page_size}


def log_size(path: Path) -> int:
    """Bytes of the write-ahead log of a file."""
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def prune(database: "SqliteDatabase", run_id: int, owner: str, keep: int | None) -> Pruned:
    """`strip`, delete the texts that nothing uses then, and make the file smaller."""
    before = database.path.stat().st_size + log_size(database.path)
    stripped = database.write(strip, run_id, owner, keep)
    with database.driver() as connection:
        # Checking references from the blob's side would scan every table once per blob.
        connection.execute("PRAGMA foreign_keys=OFF")
        try:
            connection.execute(UNUSED_BLOBS)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute("PRAGMA foreign_keys=ON")
    return Pruned(evaluations=stripped, bytes=before - database.path.stat().st_size)
