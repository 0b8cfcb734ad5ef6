"""The archive as rows: every offer as an event, and the slots that follow from them."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select

from evolve.core.digest import canonical_json
from evolve.core.errors import StoreError
from evolve.core.measurement import Interval
from evolve.core.program import instance_digest
from evolve.core.protocols import AddStatus, Elite, Offer
from evolve.store.database import identities
from evolve.store.database.backend import Database
from evolve.store.database.dialect import upsert
from evolve.store.database.schema import archive_offer, archive_slot, instance, program
from evolve.store.tables import programs

_PAGE = 500

_evicted = program.alias("evicted")
_GIVEN = [
    column.name for column in archive_offer.c if column.name not in ("id", "program", "instance")
]
_PUT = (  # nothing, where the instance is not there
    insert(archive_offer)
    .from_select(
        ["instance", "program", *_GIVEN],
        select(
            instance.c.id,
            instance.c.program,
            *(bindparam(name, type_=archive_offer.c[name].type) for name in _GIVEN),
        ).where(instance.c.digest == bindparam("digest")),
    )
    .returning(archive_offer.c.id, archive_offer.c.program)
)
_VACATE = delete(archive_slot).where(
    archive_slot.c.run == bindparam("of"), archive_slot.c.program == bindparam("loser")
)
_EMPTY = delete(archive_slot).where(
    archive_slot.c.run == bindparam("of"), archive_slot.c.slot == bindparam("place")
)
_TAKE = upsert(archive_slot)
_TAKE = _TAKE.on_conflict_do_update(
    index_elements=[archive_slot.c.run, archive_slot.c.slot],
    set_={"program": _TAKE.excluded.program, "offer": _TAKE.excluded.offer},
)
_ELITES = (
    select(archive_offer, instance.c.assignment, program.c.digest)
    .join(instance, instance.c.id == archive_offer.c.instance)
    .join(program, program.c.id == instance.c.program)
)
_SLOTS = (
    _ELITES.add_columns(archive_slot.c.slot.label("place"))
    .join(archive_slot, archive_slot.c.offer == archive_offer.c.id)
    .where(archive_slot.c.run == bindparam("run"))
    .order_by(archive_slot.c.slot)
)
_NEWEST = (
    _ELITES.where(
        archive_offer.c.run == bindparam("run"),
        archive_offer.c.program
        == select(program.c.id).where(program.c.digest == bindparam("of")).scalar_subquery(),
    )
    .order_by(archive_offer.c.id.desc())
    .limit(1)
)
_HELD_BY = select(archive_slot.c.offer).where(
    archive_slot.c.run == bindparam("run"), archive_slot.c.program == bindparam("program")
)
_EVENTS = _ELITES.add_columns(_evicted.c.digest.label("evicted_digest")).outerjoin(
    _evicted, _evicted.c.id == archive_offer.c.evicted
)
_OF_TICKET = _EVENTS.where(archive_offer.c.ticket == bindparam("ticket"))
_OFFERS = (
    _EVENTS.where(archive_offer.c.run == bindparam("run"), archive_offer.c.id > bindparam("after"))
    .order_by(archive_offer.c.id)
    .limit(_PAGE)
)


def record(connection: Connection, run_id: int, ticket: int, elite: Elite, offer: Offer) -> int:
    """Write the event and bring the slots up to date; `Offer` says what follows from one.

    Returns:
        The program's id.
    """
    evicted = None if offer.evicted is None else programs.find(connection, offer.evicted)
    put = _put(connection, run_id, ticket, elite, offer, evicted)
    program_id: int = put.program
    moved = {digest: programs.find(connection, digest) for digest in offer.moves.values() if digest}
    offers_of = {each: _held_by(connection, run_id, each) for each in moved.values()}
    if offer:
        offers_of[program_id] = put.id
    leaving = [program_id if offer else None, evicted]
    vacated = [{"of": run_id, "loser": each} for each in leaving if each is not None]
    if vacated:
        connection.execute(_VACATE, vacated)
    places = ({offer.slot: elite.program} if offer.slot is not None else {}) | dict(offer.moves)
    for place, digest in places.items():
        if digest is None:
            connection.execute(_EMPTY, {"of": run_id, "place": place})
            continue
        taker = moved.get(digest, program_id)
        row = {"run": run_id, "slot": place, "program": taker, "offer": offers_of[taker]}
        connection.execute(_TAKE, row)
    return program_id


def _put(
    connection: Connection,
    run_id: int,
    ticket: int,
    elite: Elite,
    offer: Offer,
    evicted: int | None,
) -> Row[Any]:
    """Write the event; returns its id and that of the program."""
    row = {
        "run": run_id,
        "ticket": ticket,
        "digest": instance_digest(elite.program, elite.assignment),
        "fitness": elite.fitness.value,
        "fitness_low": elite.fitness.low,
        "fitness_high": elite.fitness.high,
        "evaluations": elite.evaluations,
        "descriptors": canonical_json(dict(elite.descriptors)),
        "sequence": elite.sequence,
        "tunings": elite.tunings,
        "operator": elite.operator,
        "parents": canonical_json(list(elite.parents)),
        "status": int(offer.status),
        "slot": offer.slot,
        "evicted": evicted,
        "moves": canonical_json(dict(offer.moves)),
    }
    put = connection.execute(_PUT, row).one_or_none()
    if put is None:
        raise StoreError(
            f"program {elite.program} was never proposed with {dict(elite.assignment)}"
        )
    return put


def _held_by(connection: Connection, run_id: int, program_id: int) -> int | None:
    """The offer with which a program is held."""
    key = {"run": run_id, "program": program_id}
    found: int | None = connection.execute(_HELD_BY, key).scalar()
    return found


def slots(connection: Connection, run_id: int) -> dict[str, Elite]:
    """The elites by slot, in the order of the slots' names."""
    held = {}
    for row in connection.execute(_SLOTS, {"run": run_id}):
        held[row.place] = _elite(row)
        identities.remember(connection, row.digest, row.program)
    return held


def elite(connection: Connection, run_id: int, digest: str) -> Elite | None:
    """A program as it was offered last, held or not; None if it never was."""
    row = connection.execute(_NEWEST, {"run": run_id, "of": digest}).one_or_none()
    return None if row is None else _elite(row)


def offers(database: Database, run_id: int) -> Iterator[tuple[Elite, Offer]]:
    """Every offer in the order of telling, read page by page."""
    after = 0
    while True:
        page = database.read(_page, run_id, after)
        yield from map(_event, page)
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _page(connection: Connection, run_id: int, after: int) -> Sequence[Row[Any]]:
    return connection.execute(_OFFERS, {"run": run_id, "after": after}).all()


def of_ticket(connection: Connection, ticket: int) -> tuple[Elite, Offer] | None:
    """What a ticket offered and the answer, or None if it offered nothing."""
    row = connection.execute(_OF_TICKET, {"ticket": ticket}).one_or_none()
    return None if row is None else _event(row)


def _event(row: Row[Any]) -> tuple[Elite, Offer]:
    offer = Offer(AddStatus(row.status), row.slot, row.evicted_digest, json.loads(row.moves))
    return _elite(row), offer


def _elite(row: Row[Any]) -> Elite:
    return Elite(
        program=row.digest,
        assignment=programs.decode_assignment(row.assignment),
        fitness=Interval(row.fitness, row.fitness_low, row.fitness_high),
        descriptors=json.loads(row.descriptors),
        sequence=row.sequence,
        tunings=row.tunings,
        operator=row.operator,
        parents=tuple(json.loads(row.parents)),
        evaluations=row.evaluations,
    )
