"""A run read back for training: step by step, with texts, and what was known before each step.

A page costs a fixed number of statements, and memory holds about two pages. Every statement goes
by an index over the steps of one page, or over what the run holds of the programs that they name.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.measurement import Ratio
from evolve.core.model import BY_HAND
from evolve.core.program import Assignment
from evolve.core.records import RunRow, TicketState
from evolve.store.database.schema import (
    archive_offer,
    evaluation,
    instance,
    program,
    ticket,
    ticket_parent,
)
from evolve.store.store import Store
from evolve.store.tables import programs
from evolve.store.training import bulk, conversations, program_history

_PAGE = 100
_DIGITS = 64  # of a digest

_TICKETS = (
    select(
        ticket,
        program.c.id.label("program"),
        program.c.digest,
        program.c.language,
        program.c.source,
        instance.c.assignment,
        evaluation.c.id.label("evaluation"),
        archive_offer.c.status.label("offer"),
        archive_offer.c.slot,
    )
    .outerjoin(instance, instance.c.id == ticket.c.instance)
    .outerjoin(program, program.c.id == instance.c.program)
    .outerjoin(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(archive_offer, archive_offer.c.ticket == ticket.c.id)
    .where(ticket.c.run == bindparam("run"), ticket.c.state == TicketState.TOLD.value)
    .order_by(ticket.c.sequence)
)
_NEXT = _TICKETS.where(ticket.c.sequence > bindparam("after")).limit(_PAGE)
_AT = _TICKETS.where(ticket.c.sequence.in_(bindparam("ids", expanding=True)))
_PARENTS = (
    select(ticket_parent.c.ticket, ticket_parent.c.role, program)
    .join(program, program.c.id == ticket_parent.c.program)
    .where(ticket_parent.c.ticket.in_(bindparam("ids", expanding=True)))
    .order_by(ticket_parent.c.ticket, ticket_parent.c.position)
)
_BEGINS = select(program.c.id).where(program.c.digest.between(bindparam("low"), bindparam("high")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A program as the run knew it: its best instance by ratio, else its newest."""

    program: str
    assignment: Assignment
    source: str
    evaluation: Evaluation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A told ticket with the findings of earlier steps of the run.

    `maker` and `parent_makers` are the steps that made its program and its parents first, `first`
    the one with its instance. `shown` is the best ratio of a program whose text the prompt shows,
    `shown_makers` are the steps that made those programs first.
    """

    sequence: int
    operator: str
    model: str
    asked: conversations.Asked | None
    note: str
    failure: str
    program: str | None
    maker: int | None
    first: int | None
    language: str | None
    source: str
    assignment: Assignment
    fidelity: Fidelity
    evaluation: Evaluation | None
    later: tuple[Evaluation, ...]
    offer: int | None
    slot: str | None
    parents: tuple[str, ...]
    parent_makers: tuple[int | None, ...]
    parent: Instance | None
    shown: Ratio | None
    shown_makers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """Rows of some tickets, and by id what was read for all of them at once."""

    rows: Sequence[Row[Any]]
    parents: Mapping[int, Sequence[Row[Any]]]  # programs, by ticket
    asked: Mapping[int, conversations.Asked]
    shown: Mapping[int, Collection[int]]  # programs, by ticket
    histories: Mapping[int, program_history.ProgramHistory]  # by program


class Reader:
    """Reads the records of one run.

    Args:
        store: the database.
        run: the run.
        texts: with sources, prompts, replies and feedback.
        samples: with the raw paired times of each record's own and later evaluations.
        mentions: beginnings of the digests of the programs that a prompt shows the text of.
    """

    def __init__(
        self,
        store: Store,
        run: RunRow,
        *,
        texts: bool = True,
        samples: bool = False,
        mentions: Callable[[str], Collection[str]],
    ) -> None:
        self._database = store._database
        self._run = run
        self._texts = texts
        self._mentions = mentions
        self._conversations = conversations.Conversations()
        self._sources = bulk.Recent(bulk.texts)
        own = partial(bulk.verdicts, feedback=texts, samples=samples)
        known = partial(bulk.verdicts, feedback=texts, samples=False)
        self._own, self._known = bulk.Recent(own), bulk.Recent(known)
        self._later = bulk.Recent(partial(bulk.verdicts, feedback=False, samples=samples))
        self._begins: dict[str, tuple[int, ...]] = {}

    def pages(self) -> Iterator[list[Record]]:
        """Every told step of the run, in order."""
        after = -1
        while True:
            records = self._database.read(self._next, after)
            if records:
                yield records
            if len(records) < _PAGE:
                return
            after = records[-1].sequence

    def _next(self, connection: Connection, after: int) -> list[Record]:
        key = {"run": self._run.id, "after": after}
        return self._records(connection, connection.execute(_NEXT, key).all())

    def at(self, sequences: Collection[int]) -> list[Record]:
        """Some told steps, in order; keep it to a page or so at a time."""
        return self._database.read(self._at, sequences)

    def _at(self, connection: Connection, sequences: Collection[int]) -> list[Record]:
        rows = [
            row
            for part in bulk.in_parts(sequences)
            for row in connection.execute(_AT, {"run": self._run.id, "ids": part}).all()
        ]
        return self._records(connection, rows)

    def _records(self, connection: Connection, rows: Sequence[Row[Any]]) -> list[Record]:
        page = self._page(connection, rows)
        best = {
            row.id: page.histories[parents[0].id].best_before(row.sequence)
            for row in rows
            if (parents := page.parents.get(row.id)) and parents[0].id in page.histories
        }
        later = {
            row.id: page.histories[row.program].later(row.instance, row.sequence)
            for row in rows
            if row.program is not None
        }
        own = self._own.turn(connection, (row.evaluation for row in rows))
        known = self._known.turn(connection, (row.evaluation for row in best.values() if row))
        again = self._later.turn(connection, (one for ids in later.values() for one in ids))
        wanted = [row.source for row in rows if row.source is not None]
        wanted += [parents[0].source for parents in page.parents.values()]
        sources = self._sources.turn(connection, wanted if self._texts else ())
        return [
            _record(
                row,
                page,
                evaluation=own.get(row.evaluation),
                later=tuple(again[one] for one in later.get(row.id, ())),
                source=sources.get(row.source, ""),
                parent=_instance(page.parents.get(row.id, ()), best.get(row.id), known, sources),
            )
            for row in rows
        ]

    def _page(self, connection: Connection, rows: Sequence[Row[Any]]) -> _Page:
        parents = _parents(connection, rows)
        tickets = [row.id for row in rows]
        asked = self._conversations.of(connection, tickets, tickets if self._texts else ())
        shown = {row.id: {parent.id for parent in parents.get(row.id, ())} for row in rows}
        for identity, conversation in asked.items():
            for prefix in self._prefixes(conversation):
                shown[identity].update(self._beginning(connection, prefix))
        named = {row.program for row in rows if row.program is not None}
        found = program_history.histories(
            connection, self._run.id, self._run.baseline, named.union(*shown.values())
        )
        return _Page(rows, parents, asked, shown, found)

    def _prefixes(self, asked: conversations.Asked) -> set[str]:
        messages = (message for one in asked.exchanges for message in one.request.messages)
        return {prefix for message in messages for prefix in self._mentions(message.content)}

    def _beginning(self, connection: Connection, prefix: str) -> tuple[int, ...]:
        """Programs whose digest begins so."""
        if prefix not in self._begins:
            key = {"low": prefix.ljust(_DIGITS, "0"), "high": prefix.ljust(_DIGITS, "f")}
            if len(self._begins) > 100 * _PAGE:
                self._begins.clear()
            self._begins[prefix] = tuple(connection.execute(_BEGINS, key).scalars())
        return self._begins[prefix]


def _parents(connection: Connection, rows: Sequence[Row[Any]]) -> dict[int, list[Row[Any]]]:
    """The programs that each ticket used; those selected if it failed and names none."""
    found: dict[str, dict[int, list[Row[Any]]]] = {"selected": {}, "used": {}}
    for part in bulk.in_parts([row.id for row in rows]):
        for row in connection.execute(_PARENTS, {"ids": part}).all():
            found[row.role].setdefault(row.ticket, []).append(row)
    failed = {row.id for row in rows if row.instance is None}
    selected = {key: parents for key, parents in found["selected"].items() if key in failed}
    return selected | found["used"]


def _instance(
    parents: Sequence[Row[Any]],
    best: Row[Any] | None,
    known: Mapping[int, Evaluation],
    sources: Mapping[int, str],
) -> Instance | None:
    """The main parent as it was known."""
    if not parents:
        return None
    return Instance(
        program=parents[0].digest,
        assignment=programs.decode_assignment(best.assignment if best else "{}"),
        source=sources.get(parents[0].source, ""),
        evaluation=known.get(best.evaluation) if best else None,
    )


def _record(
    row: Row[Any],
    page: _Page,
    *,
    evaluation: Evaluation | None,
    later: tuple[Evaluation, ...],
    source: str,
    parent: Instance | None,
) -> Record:
    history, asked = page.histories.get(row.program), page.asked.get(row.id)
    parents = page.parents.get(row.id, ())
    held = [page.histories[one] for one in page.shown[row.id] if one in page.histories]
    shown = (program_history.ratio_of(one.best_before(row.sequence)) for one in held)
    return Record(
        sequence=row.sequence,
        operator=row.operator,
        model=asked.model if asked and row.model == BY_HAND else row.model,
        asked=asked,
        note=row.note,
        failure=row.failure,
        program=row.digest,
        maker=history.maker if history else None,
        first=history.first(row.instance) if history else None,
        language=row.language,
        source=source,
        assignment=programs.decode_assignment(row.assignment or "{}"),
        fidelity=Fidelity(row.fidelity or Fidelity.SEARCH),
        evaluation=evaluation,
        later=later,
        offer=row.offer,
        slot=row.slot,
        parents=tuple(one.digest for one in parents),
        parent_makers=tuple(
            page.histories[one.id].maker if one.id in page.histories else None for one in parents
        ),
        parent=parent,
        shown=max((one for one in shown if one), key=lambda one: one.value, default=None),
        shown_makers=tuple(one.maker for one in held),
    )
