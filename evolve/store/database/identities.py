"""Ids of programs that were looked up before: digests lie all over their index, page by page."""

from sqlalchemy import Connection

_KEY = "programs"
_MAX_IDS = 50_000  # several times what an archive holds


def known(connection: Connection) -> dict[str, int]:
    """Ids by digest, of this connection to the file; programs never change and never go."""
    found: dict[str, int] = connection.info.setdefault(_KEY, {})
    return found


def remember(connection: Connection, digest: str, identity: int) -> None:
    """Keep an id that the file, or this transaction, holds."""
    ids = known(connection)
    if len(ids) >= _MAX_IDS:
        ids.clear()
    ids[digest] = identity


def forget(connection: Connection) -> None:
    """After a transaction that is taken back: another program may get the id of a new one."""
    connection.info.pop(_KEY, None)
