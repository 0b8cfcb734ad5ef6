"""Maintenance of any database: sizes by kind, and pruning."""

from sqlalchemy import Connection, bindparam, func, select, update

from evolve.store.database import lease, schema
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
from evolve.store.tables import audit_log, runs
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
UNUSED_BLOBS = "DELETE FROM blob WHERE id NOT IN ({})".format(
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
    .returning(evaluation.c.id)
)
_ALL = 2**31 - 1  # rows of a LIMIT


def texts(connection: Connection) -> dict[str, int]:
    """Bytes of compressed texts by use."""
    sizes = {}
    for kind, column in _USES.items():
        used = select(column).where(column.is_not(None))
        stored = select(func.sum(func.length(blob.c.bytes))).where(blob.c.id.in_(used))
        sizes[kind] = int(connection.execute(stored).scalar_one() or 0)
    return sizes


def strip(connection: Connection, run_id: int, owner: str, keep: int | None) -> int:
    """Drop raw samples and feedback of a run, but not of its elites and their ancestors.

    Programs, verdicts, ratios and labels stay.

    Args:
        connection: of the transaction.
        run_id: The run; no other process may be continuing it.
        owner: Token of the caller.
        keep: How many of the fittest elites keep their samples; None for all in the archive.

    Returns:
        How many evaluations lost something.
    """
    name = runs.row_of(connection, run_id).name
    lease.refuse_if_held(connection, run_id, owner)
    limit = _ALL if keep is None else keep
    stripped = len(connection.execute(_STRIP, {"run": run_id, "keep": limit}).all())
    audit_log.add(connection, "pruned", name, f"samples and feedback of {stripped} evaluations")
    return stripped
