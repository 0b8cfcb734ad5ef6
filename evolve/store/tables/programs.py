"""Programs and their instances: shared by all runs of a database."""

import json

from sqlalchemy import Connection, and_, bindparam, select

from evolve.core.digest import canonical_json
from evolve.core.errors import UsageError
from evolve.core.program import Assignment, Program, instance_digest
from evolve.core.protocols import Proposal
from evolve.core.source.normalise import normalised_digest
from evolve.languages.registry import detect_language
from evolve.store.database import blobs, identities
from evolve.store.database.dialect import upsert
from evolve.store.database.schema import blob, instance, program

# Another run may add the same one at this moment: written over by itself, it is found or made.
_PUT_PROGRAM = (
    upsert(program)
    .on_conflict_do_update(index_elements=[program.c.digest], set_={"language": program.c.language})
    .returning(program.c.id)
)
_FIND_PROGRAM = select(program.c.id).where(program.c.digest == bindparam("digest"))
_PUT_INSTANCE = (
    upsert(instance)
    .on_conflict_do_update(
        index_elements=[instance.c.digest], set_={"assignment": instance.c.assignment}
    )
    .returning(instance.c.id)
)
_FIND_BOTH = (
    select(program.c.id.label("program"), instance.c.id.label("instance"))
    .outerjoin(
        instance,
        and_(instance.c.program == program.c.id, instance.c.digest == bindparam("instance")),
    )
    .where(program.c.digest == bindparam("program"))
)
_SOURCE = (
    select(blob.c.codec, blob.c.bytes)
    .join(program, program.c.source == blob.c.id)
    .where(program.c.id == bindparam("of"))
)


def parse_ahead(outcome: object) -> None:
    """Fill the caches of `normalised_digest` and `detect_language`.

    The transaction that stores a program then does not parse it.
    """
    if isinstance(outcome, Proposal):
        normalised_digest(outcome.program.source)
        detect_language(outcome.program.source)


def put_instance(connection: Connection, item: Program, assignment: Assignment) -> int:
    """The id of the instance; it and its program are stored unless they are there already."""
    digest = instance_digest(item.digest, assignment)
    key = {"program": item.digest, "instance": digest}
    found = connection.execute(_FIND_BOTH, key).one_or_none()
    if found is not None and found.instance is not None:
        return int(found.instance)
    row = {
        "digest": digest,
        "program": _put_program(connection, item) if found is None else found.program,
        "assignment": encode_assignment(assignment),
    }
    identity: int = connection.execute(_PUT_INSTANCE, row).scalar_one()
    return identity


def _put_program(connection: Connection, item: Program) -> int:
    row = {
        "digest": item.digest,
        "normalised": normalised_digest(item.source),
        "source": blobs.put(connection, item.source),
        "language": detect_language(item.source).name,
    }
    identity: int = connection.execute(_PUT_PROGRAM, row).scalar_one()
    identities.remember(connection, item.digest, identity)
    return identity


def find(connection: Connection, digest: str) -> int:
    """The id of a stored program.

    Raises:
        UsageError: no program has this digest.
    """
    found = identities.known(connection).get(digest)
    if found is None and is_digest(digest):
        found = connection.execute(_FIND_PROGRAM, {"digest": digest}).scalar()
        if found is not None:
            identities.remember(connection, digest, found)
    if found is None:
        raise UsageError(f"no program {digest!r} in this database; give the digest of a stored one")
    return found


def source(connection: Connection, digest: str) -> str:
    """The text of a stored program."""
    row = connection.execute(_SOURCE, {"of": find(connection, digest)}).one()
    return blobs.decode(*row)


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
