"""The database that a location names: a file of SQLite, or the URL of a PostgreSQL server."""

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
    """Connect to the database at a location; `Store.open` says what the options mean.

    With `to_upgrade` one of an older schema is taken, which nothing but `upgrade` understands.
    """
    options = {"create": create, "read_only": read_only, "to_upgrade": to_upgrade}
    if not address.is_url(str(location)):
        return SqliteDatabase(Path(location), **options)
    try:
        from evolve.store.postgresql.database import PostgresDatabase
    except ImportError as error:
        raise UsageError(
            f"{address.shown(str(location))} needs a driver of PostgreSQL ({error}); install it "
            "with `pip install 'evolve-kernels[postgresql]'`"
        ) from error
    return PostgresDatabase(str(location), **options)
