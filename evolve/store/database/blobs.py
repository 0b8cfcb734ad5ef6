"""Texts and bytes, stored once each: sources, feedback, environments, raw samples."""

import hashlib
import zlib
from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, select

from evolve.core.errors import StoreError
from evolve.store.database.dialect import upsert
from evolve.store.database.schema import blob

_MIN_COMPRESSED_BYTES = 128

# A text that is there already is written over by itself: one statement finds or makes it.
_PUT = (
    upsert(blob)
    .on_conflict_do_update(index_elements=[blob.c.sha256], set_={"codec": blob.c.codec})
    .returning(blob.c.id)
)
_KNOWN = select(blob.c.sha256, blob.c.id).where(
    blob.c.sha256.in_(bindparam("digests", expanding=True))
)
_GET = select(blob.c.codec, blob.c.bytes).where(blob.c.id == bindparam("id"))


def put(connection: Connection, text: str) -> int:
    """The id of a blob with this text, which is stored unless it is there already."""
    data = text.encode()
    key = {"sha256": hashlib.sha256(data).digest()}
    if len(data) < _MIN_COMPRESSED_BYTES:
        content = {"codec": "raw", "bytes": data}
    else:
        content = {"codec": "zlib", "bytes": zlib.compress(data)}
    identity: int = connection.execute(_PUT, key | content).scalar_one()
    return identity


def put_all(connection: Connection, texts: Iterable[str]) -> Mapping[str, int]:
    """The ids of texts, by text, for such as are mostly there: compressed and written if not."""
    digests = {text: hashlib.sha256(text.encode()).digest() for text in texts}
    rows = connection.execute(_KNOWN, {"digests": list(digests.values())})
    known = {row.sha256: int(row.id) for row in rows}
    # In one order, so that two writers that add the same texts do not wait for each other.
    ordered = sorted(digests.items(), key=lambda item: item[1])
    return {
        text: known[digest] if digest in known else put(connection, text)
        for text, digest in ordered
    }


def decode(codec: str, data: bytes) -> str:
    """The text of a stored blob.

    Raises:
        StoreError: it is not what was stored.
    """
    try:
        return (zlib.decompress(data) if codec == "zlib" else data).decode()
    except (zlib.error, UnicodeDecodeError) as error:
        raise StoreError(
            f"a stored text is damaged ({error}); go back to a backup of the database"
        ) from error


def get(connection: Connection, identity: int) -> str:
    """The text of a blob, by id."""
    return decode(*connection.execute(_GET, {"id": identity}).one())


def get_unless_none(connection: Connection, identity: int | None) -> str:
    """The text, or `""` if there is none (never stored, or pruned)."""
    return "" if identity is None else get(connection, identity)
