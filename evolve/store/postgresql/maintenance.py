"""Looking after a server's database: size and pruning."""

from sqlalchemy import Connection, text

from evolve.core.records import Pruned
from evolve.store.database import schema
from evolve.store.maintenance import UNUSED_BLOBS, strip

_SIZE = text("SELECT pg_total_relation_size(CAST(:name AS regclass))")
_TEXTS = text("SELECT coalesce(sum(length(bytes)), 0) FROM blob")


def size(connection: Connection) -> dict[str, int]:
    """Bytes of all tables with their indexes."""
    names = [f'"{name}"' for name in schema.metadata.tables]
    sizes = (connection.execute(_SIZE, {"name": name}).scalar_one() for name in names)
    return {"records": sum(map(int, sizes))}


def prune(connection: Connection, run: int, owner: str, keep: int | None) -> Pruned:
    """`strip`, and delete the texts that nothing uses then; the server reuses their space."""
    before = connection.execute(_TEXTS).scalar_one()
    stripped = strip(connection, run, owner, keep)
    connection.exec_driver_sql(UNUSED_BLOBS)
    after = connection.execute(_TEXTS).scalar_one()
    return Pruned(evaluations=stripped, bytes=int(before - after))
