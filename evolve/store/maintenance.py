"""Looking after a database: backup, size, pruning."""

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import bindparam, func, select, update

from evolve.core.errors import UsageError
from evolve.store.database import lease, schema
from evolve.store.database.connection import Database
from evolve.store.database.schema import (
    archive_offer,
    archive_slot,
    blob,
    call,
    evaluation,
    instance,
    program,
    request_message,
    run,
    ticket,
)
from evolve.store.rows import Pruned
from evolve.store.tables import runs
from evolve.store.tables.lineage import ancestry

_USES = {
    "sources": program.c.source,
    "samples": evaluation.c.samples,
    "feedback": evaluation.c.feedback,
    "environments": evaluation.c.environment,
    "tasks": run.c.task,
    "prompts": request_message.c.content,
    "replies": call.c.reply,
    "reasoning": call.c.reasoning,
    "token_traces": call.c.trace,
}
# Every column that refers to a blob, so that a table added later is not forgotten.
_REFERENCES = [
    key.parent
    for table in schema.metadata.tables.values()
    for key in table.foreign_keys
    if key.column.table is blob
]
_UNUSED_BLOBS = "DELETE FROM blob WHERE id NOT IN ({})".format(
    " UNION ALL ".join(
        f"SELECT {use.name} FROM {use.table} WHERE {use.name} IS NOT NULL" for use in _REFERENCES
    )
)
_KEPT = (
    select(archive_offer.c.program.label("program"))
    .where(
        archive_offer.c.id.in_(
            select(archive_slot.c.offer).where(archive_slot.c.run == bindparam("run"))
        )
    )
    .order_by(archive_offer.c.fitness.desc(), archive_offer.c.sequence)
    .limit(bindparam("keep"))
)
# SQLite takes no LIMIT directly inside a compound query.
_LINE = ancestry(select(_KEPT.subquery().c.program.label("program")))
_STRIP = (
    update(evaluation)
    .where(
        evaluation.c.ticket.in_(
            select(ticket.c.id)
            .join(instance, instance.c.id == ticket.c.instance)
            .where(ticket.c.run == bindparam("run"))
            .where(instance.c.program.not_in(select(_LINE.c.program)))
        ),
        evaluation.c.samples.is_not(None) | evaluation.c.feedback.is_not(None),
    )
    .values(samples=None, feedback=None)
)


def backup(database: Database, target: Path) -> None:
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


def size(database: Database) -> dict[str, int]:
    """Bytes on disk by kind: compressed texts by what uses them, `records`, write-ahead `log`."""
    sizes: dict[str, int] = {}
    with database.read() as connection:
        for kind, column in _USES.items():
            used = select(column).where(column.is_not(None))
            total = select(func.sum(func.length(blob.c.bytes))).where(blob.c.id.in_(used))
            sizes[kind] = connection.execute(total).scalar_one() or 0
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        page_size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    sizes["records"] = pages * page_size - sum(sizes.values())
    sizes["log"] = _log_size(database.path)
    return sizes


def _log_size(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return log.stat().st_size if log.exists() else 0


def prune(database: Database, run_id: int, owner: str, keep: int | None) -> Pruned:
    """Drop raw samples and feedback of a run, but not of its elites and their ancestors.

    Programs, verdicts, ratios and labels stay.

    Args:
        database: Where the run is.
        run_id: The run; no other process may be continuing it.
        owner: Token of the caller.
        keep: How many of the fittest elites keep theirs; None for all in the archive.
    """
    before = database.path.stat().st_size + _log_size(database.path)
    with database.write() as connection:
        runs.row_of(connection, run_id)
        lease.refuse_if_held(connection, run_id, owner)
        limit = -1 if keep is None else keep
        connection.execute(_STRIP, {"run": run_id, "keep": limit})
        # The driver counts no rows for a statement that starts with WITH.
        stripped = connection.exec_driver_sql("SELECT changes()").scalar_one()
    with database.driver() as connection:
        # Checking references from the blob's side would scan every table once per blob.
        connection.execute("PRAGMA foreign_keys=OFF")
        try:
            connection.execute(_UNUSED_BLOBS)
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.execute("PRAGMA foreign_keys=ON")
    return Pruned(evaluations=stripped, bytes=before - database.path.stat().st_size)


def upgrade(database: Database) -> str:
    """Bring the schema up to date; there is only one so far."""
    return f"{database.path} has schema {schema.VERSION}, the current one; nothing to do"
