"""Programs and their instances: shared by all runs of a database."""

import json
from functools import lru_cache

from sqlalchemy import Connection, bindparam, insert, select

from evolve.core import normalise
from evolve.core.digest import canonical_json
from evolve.core.errors import StoreError, UsageError
from evolve.core.program import Assignment, Program, instance_digest
from evolve.store import blobs
from evolve.store.schema import blob, instance, program

_PUT_PROGRAM = insert(program).returning(program.c.id)
_FIND_PROGRAM = select(program.c.id).where(program.c.digest == bindparam("digest"))
_PUT_INSTANCE = insert(instance).returning(instance.c.id)
_FIND_INSTANCE = select(instance.c.id).where(instance.c.digest == bindparam("digest"))
_SOURCE = (
    select(blob.c.codec, blob.c.bytes)
    .join(program, program.c.source == blob.c.id)
    .where(program.c.digest == bindparam("digest"))
)


def put_instance(connection: Connection, item: Program, assignment: Assignment) -> int:
    """The id of the instance; it and its program are stored unless they are there already."""
    digest = instance_digest(item.digest, assignment)
    found: int | None = connection.execute(_FIND_INSTANCE, {"digest": digest}).scalar()
    if found is not None:
        return found
    row = {
        "digest": digest,
        "program": _put_program(connection, item),
        "assignment": encode_assignment(assignment),
    }
    identity: int = connection.execute(_PUT_INSTANCE, row).scalar_one()
    return identity


def _put_program(connection: Connection, item: Program) -> int:
    digest = item.digest
    found: int | None = connection.execute(_FIND_PROGRAM, {"digest": digest}).scalar()
    if found is not None:
        return found
    row = {
        "digest": digest,
        "normalised": normalised_digest(item.source),
        "source": blobs.put(connection, item.source),
        "language": item.language.value,
    }
    identity: int = connection.execute(_PUT_PROGRAM, row).scalar_one()
    return identity


@lru_cache(maxsize=64)
def normalised_digest(source: str) -> str:
    """`evolve.core.normalise.normalised_digest`, once where a new program is first looked up.

    Parsing 4 KB takes as long as everything else that the store does for a candidate.
    """
    return normalise.normalised_digest(source)


def find(connection: Connection, digest: str) -> int:
    """The id of a stored program.

    Raises:
        UsageError: no program has this digest.
    """
    found: int | None = None
    if is_digest(digest):
        found = connection.execute(_FIND_PROGRAM, {"digest": digest}).scalar()
    if found is None:
        raise UsageError(f"no program {digest!r} in this database; give the digest of a stored one")
    return found


def find_instance(connection: Connection, digest: str, assignment: Assignment) -> int:
    """The id of a stored instance.

    Raises:
        StoreError: it was never proposed, so nothing can have been learned of it.
    """
    key = {"digest": instance_digest(digest, assignment)}
    found: int | None = connection.execute(_FIND_INSTANCE, key).scalar()
    if found is None:
        raise StoreError(f"program {digest} was never proposed with {dict(assignment)}")
    return found


def source(connection: Connection, digest: str) -> str:
    """The text of a stored program."""
    find(connection, digest)
    return blobs.decode(*connection.execute(_SOURCE, {"digest": digest}).one())


def is_digest(text: str) -> bool:
    """Whether the text has the form of a digest: 64 hex digits."""
    return len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)


def encode_assignment(assignment: Assignment) -> str:
    """The same text for equal assignments."""
    return canonical_json(dict(assignment))


def decode_assignment(text: str) -> Assignment:
    """The assignment that `encode_assignment` was given."""
    assignment: Assignment = json.loads(text)
    return assignment
