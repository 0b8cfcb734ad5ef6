"""Texts and evaluations, many at a time: what reading a whole run page by page needs."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, TypeVar

from sqlalchemy import Connection, bindparam, select

from evolve.core.evaluation import Evaluation
from evolve.store.database import blobs
from evolve.store.database.schema import blob, evaluation
from evolve.store.tables import evaluations

_AT_ONCE = 500

_BLOBS = select(blob.c.id, blob.c.codec, blob.c.bytes).where(
    blob.c.id.in_(bindparam("ids", expanding=True))
)
_EVALUATIONS = select(evaluation).where(evaluation.c.id.in_(bindparam("ids", expanding=True)))

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by id, those of the last two pages kept: neighbours share prompts and parents.

    Args:
        load: reads the values of some ids.
    """

    def __init__(self, load: Callable[[Connection, Collection[int]], dict[int, Value]]) -> None:
        self._load = load
        self._values: dict[int, Value] = {}

    def turn(self, connection: Connection, ids: Iterable[int | None]) -> dict[int, Value]:
        """The values of the ids of one page; what the last page had is not read again."""
        wanted = {identity for identity in ids if identity is not None}
        held = {identity: self._values[identity] for identity in wanted & self._values.keys()}
        held |= self._load(connection, wanted - held.keys())
        self._values = held
        return held


def in_parts(ids: Collection[int]) -> Iterator[list[int]]:
    """Sorted ids in parts that one statement takes."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), _AT_ONCE):
        yield ordered[start : start + _AT_ONCE]


def texts(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Blobs by id."""
    return {
        row.id: blobs.decode(row.codec, row.bytes)
        for part in in_parts(ids)
        for row in connection.execute(_BLOBS, {"ids": part}).all()
    }


def verdicts(
    connection: Connection, ids: Collection[int], *, feedback: bool, samples: bool
) -> dict[int, Evaluation]:
    """Evaluations by id, without what is not asked for."""
    rows = [
        row
        for part in in_parts(ids)
        for row in connection.execute(_EVALUATIONS, {"ids": part}).all()
    ]
    wanted = {row.environment for row in rows}
    wanted |= {row.feedback for row in rows} if feedback else set()
    wanted |= {row.samples for row in rows} if samples else set()
    said = texts(connection, wanted - {None})
    places = {row.environment for row in rows} - {None}
    environments = {place: json.loads(said[place]) for place in places}  # a few, shared by many
    measured = {
        identity: ratios
        for part in in_parts([row.id for row in rows])
        for identity, ratios in evaluations.ratios(connection, part).items()
    }
    return {
        row.id: evaluations.of_row(
            row,
            measured.get(row.id, {}),
            feedback=said.get(row.feedback, ""),
            environment=environments.get(row.environment, {}),
            samples=json.loads(said.get(row.samples, "{}")),
        )
        for row in rows
    }
