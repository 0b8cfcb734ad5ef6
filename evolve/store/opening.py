"""The database that a location names: a file of SQLite, or the URL of a PostgreSQL server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evolve.core.errors import UsageError
from evolve.store.database.backend import Database
from evolve.store.postgresql import address
from evolve.store.sqlite.database import SqliteDatabase


def open_database(
    location: str | Path,
    *,
    create: bool = False,
    read_only: bool = False,
    to_upgrade: bool = False,
) -> Database:
    """Connect to the database at a location; `Store.open` explains the options.

    With `to_upgrade` one of an older schema is taken, which nothing but `upgrade` understands.
    """
    options = {"create": create, "read_only": read_only, "to_upgrade": to_upgrade}
    if not address.is_url(str(location)):
        return SqliteDatabase(Path(location), **options)
    with _driver(str(location)):
        from evolve.store.postgresql.database import PostgresDatabase
    return PostgresDatabase(str(location), **options)


def exists(location: str | Path) -> bool:
    """Whether this project has made its database there; UsageError if it is another one."""
    if not address.is_url(str(location)):
        return Path(location).is_file()
    with _driver(str(location)):
        from evolve.store.postgresql.schema import EmptyDatabase
    try:
        open_database(location, read_only=True).close()
    except EmptyDatabase:
        return False
    return True


@contextmanager
def _driver(url: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{address.shown(url)} needs a driver of PostgreSQL ({error}); install it with "
            "`pip install 'evolve-kernels[postgresql]'`"
        ) from error
