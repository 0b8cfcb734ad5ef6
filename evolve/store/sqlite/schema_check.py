"""Is this a database of this project, at this version, and if not, the remedy."""

import sqlite3
from pathlib import Path

from sqlalchemy import Connection

from evolve.core.errors import UsageError
from evolve.store.database import migrations, schema

_MIN_BYTES = 512  # bytes: the smallest page that SQLite knows

# One statement, for another process may be making the tables at this moment.
_STAMP = """
    SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version
"""


def check_place(path: Path, *, create: bool) -> None:
    """Refuse a path where no database is or could be; with `create`, make its folder.

    Looks without opening the file: closing it again would drop the locks that another connection
    of this process holds on it.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a database file")
    if path.exists():
        if not path.is_file():  # a pipe would be waited for
            raise UsageError(f"{path} is no regular file; give the path of a database file")
        # SQLite takes a file shorter than its header for an empty one, and would overwrite it.
        if 0 < path.stat().st_size < _MIN_BYTES:
            raise UsageError(f"{path} is not a database; check the path")
        return
    if not create:
        raise UsageError(f"no database at {path}; check the path, or start a run there first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {path.parent} ({error.strerror}); choose another place"
        ) from error


def version(connection: Connection) -> int:
    """The number that is stamped into the file; 0 if it is new."""
    found: int = connection.exec_driver_sql("PRAGMA user_version").scalar_one()
    return found


def put_version(connection: Connection) -> None:
    """Stamp the current number."""
    connection.exec_driver_sql(f"PRAGMA user_version={schema.VERSION}")


def create(connection: Connection) -> None:
    """Make the tables in a new file."""
    schema.metadata.create_all(connection)
    connection.exec_driver_sql("ANALYZE")  # makes the table, and finds nothing to put into it
    for place, numbers in schema.STATISTICS.items():
        connection.exec_driver_sql("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", (*place, numbers))
    connection.exec_driver_sql("ANALYZE sqlite_master")  # makes this connection read them
    connection.exec_driver_sql(f"PRAGMA application_id={schema.APPLICATION_ID}")
    put_version(connection)


def refuse_foreign(
    path: Path, connection: sqlite3.Connection, *, accept_new: bool, accept_old: bool
) -> None:
    """Refuse a file that this version cannot use, before anything in it is changed.

    Raises:
        UsageError: it is of another program, of an older or newer schema, or empty (unless
            `accept_new`). With `accept_old` one that can be brought up to date is taken.
    """
    application, version, objects = connection.execute(_STAMP).fetchone()
    if not objects and accept_new:
        return
    if not objects:
        raise UsageError(f"{path} is empty; check the path, or start a run there first")
    if application != schema.APPLICATION_ID:
        raise UsageError(f"{path} is a database of another program; choose another path")
    if not (accept_old and migrations.OLDEST <= version <= schema.VERSION):
        migrations.refuse_others(str(path), version)
