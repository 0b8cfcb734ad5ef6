"""Numbered steps from one schema to the next, each within the transaction of the upgrade."""

from collections.abc import Callable, Mapping

from sqlalchemy import Connection
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from evolve.core.errors import UsageError
from evolve.store.database import lease, schema
from evolve.store.tables import audit_log

Step = Callable[[Connection], None]


def _tunings(connection: Connection) -> None:
    """Schema 5: tickets of operators that tune are counted; an older run has none."""
    for place in ("run.tunings", "ticket.tuning", "ticket.tunings", "archive_offer.tunings"):
        table, column = place.split(".")
        connection.exec_driver_sql(
            f"ALTER TABLE {table} ADD COLUMN {column} INTEGER NOT NULL DEFAULT '0'"
        )


def _revisions(connection: Connection) -> None:
    """Schema 6: a round of a ticket may have several texts, so its requests are keyed by three.

    SQLite changes no constraint in place: the table is made anew. PostgreSQL began with schema 6.
    """
    names = [column.name for column in schema.request.columns]
    added = ("revision", "judged", "replaced")
    kept = ", ".join(f'"{name}"' for name in names if name not in added)
    anew = str(CreateTable(schema.request).compile(connection))
    connection.exec_driver_sql(anew.replace("TABLE request", "TABLE request_anew", 1))
    connection.exec_driver_sql(f"INSERT INTO request_anew ({kept}) SELECT {kept} FROM request")
    connection.exec_driver_sql("DROP TABLE request")
    connection.exec_driver_sql("ALTER TABLE request_anew RENAME TO request")
    for index in schema.request.indexes:
        connection.execute(CreateIndex(index))


def _teams(connection: Connection) -> None:
    """Schema 7: who started a run, quotas, and the audit log; of an older run it is not known."""
    for name in ("started_by", "host", "project"):
        column = CreateColumn(schema.run.c[name]).compile(dialect=connection.dialect)
        connection.exec_driver_sql(f"ALTER TABLE run ADD COLUMN {column}")
    for table in (schema.quota, schema.audit_log):
        table.create(connection)


def _charges(connection: Connection) -> None:
    """Schema 8: device time of servers counts for quotas."""
    schema.charge.create(connection)


def _steering(connection: Connection) -> None:
    """Schema 9: people steer a search; their changes are events of the run."""
    for table in (schema.steering, schema.steering_taken):
        table.create(connection)


STEPS: Mapping[int, Step] = {5: _tunings, 6: _revisions, 7: _teams, 8: _charges, 9: _steering}
"""The way to each schema from the one before it."""

OLDEST = min(STEPS) - 1


def refuse_others(location: str, version: int, oldest: int = OLDEST) -> None:
    """Raise UsageError for a schema that this version does not read, with the remedy.

    Those from `oldest` on can be brought up to date.
    """
    if version > schema.VERSION:
        raise UsageError(
            f"{location} has schema {version}, this version of evolve-kernels reads schema "
            f"{schema.VERSION}; upgrade with `pip install -U evolve-kernels`"
        )
    if version < oldest:
        raise UsageError(
            f"{location} has schema {version} of an earlier development version, which schema "
            f"{schema.VERSION} cannot take over; keep the database and start a new one"
        )
    if version < schema.VERSION:
        raise UsageError(
            f"{location} has schema {version}, this version of evolve-kernels reads schema "
            f"{schema.VERSION}; bring it up to date with `evolve db upgrade --store {location}`"
        )


def migrate(connection: Connection, version: int) -> None:
    """Take all steps from a version to the current one; nothing may be continuing a run."""
    if version == schema.VERSION:
        return
    for holder in connection.execute(lease.HOLDERS).all():
        if not lease.is_gone(holder):
            raise lease.refusal(holder)
    for number in range(version + 1, schema.VERSION + 1):
        STEPS[number](connection)
    audit_log.add(connection, "upgraded", detail=f"schema {version} to {schema.VERSION}")
