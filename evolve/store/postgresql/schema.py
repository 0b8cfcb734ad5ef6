"""Tables on a server, and whether they are of this version."""

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    inspect,
    or_,
    select,
    update,
)

from evolve.core.errors import UsageError
from evolve.store.database import migrations
from evolve.store.database import schema as shared
from evolve.store.database.dialect import WHOLE


class EmptyDatabase(UsageError):
    """There are no tables in it yet."""


_own = MetaData()

stamp = Table("schema_version", _own, Column("version", WHOLE, primary_key=True))

writer = Table(  # the newest transaction of each process: whether one was committed is looked up
    "writer",
    _own,
    Column("token", Text, primary_key=True),
    Column("number", WHOLE, nullable=False),
    Column("seen", WHOLE, nullable=False),  # seconds since 1970
)

FIRST = 6
"""The schema that the first databases on a server had."""

FORGET = delete(writer).where(
    or_(writer.c.token == bindparam("of"), writer.c.seen < bindparam("before"))
)
_ONE_AT_A_TIME = "SELECT pg_advisory_xact_lock(hashtext('evolve ' || current_schema()))"


def prepare(connection: Connection, location: str, *, create: bool, accept_new: bool) -> None:
    """Make the tables in an empty schema, if allowed to; refuse those of another version."""
    if create:
        connection.exec_driver_sql(_ONE_AT_A_TIME)
    tables = inspect(connection).get_table_names()
    if not tables and create:
        shared.metadata.create_all(connection)
        _own.create_all(connection)
        connection.execute(insert(stamp).values(version=shared.VERSION))
    elif not tables and not accept_new:
        raise EmptyDatabase(f"{location} is empty; check the URL, or start a run there first")
    elif tables:
        migrations.refuse_others(location, known_version(connection, location), FIRST)


def known_version(connection: Connection, location: str) -> int:
    """The number that is stamped into the database; UsageError if it is of another program."""
    tables = inspect(connection).get_table_names()
    if stamp.name not in tables or shared.run.name not in tables:
        raise UsageError(
            f"{location} holds tables of another program; name another database, or a schema of "
            "its own by ?options=-csearch_path%3DNAME"
        )
    found: int = connection.execute(select(stamp.c.version)).scalar_one()
    return found


def put_version(connection: Connection) -> None:
    """Stamp the current number."""
    connection.execute(update(stamp).values(version=shared.VERSION))
