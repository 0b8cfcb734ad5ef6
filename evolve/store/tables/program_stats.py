"""Current knowledge of a program: its best instance, with its evaluations pooled."""

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, or_, select

from evolve.core.behaviour import CASE, behaviour
from evolve.core.elites import Elite
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import OPPONENT
from evolve.core.measurement import Interval, Ratio, pooled
from evolve.core.records import Ticket, TicketState
from evolve.store.database.schema import (
    evaluation,
    evaluation_ratio,
    instance,
    program,
    run,
    ticket,
    ticket_parent,
)
from evolve.store.tables import evaluations, programs
from evolve.store.tables.evaluations import SAYS_NOTHING
from evolve.store.tables.lineage import first_ticket

_JUDGED: Select[Any] = (
    select(
        instance.c.assignment,
        ticket.c.id,
        ticket.c.sequence,
        ticket.c.tunings,
        ticket.c.operator,
        first_ticket(program.c.id).label("maker"),
        run.c.baseline,
        evaluation.c.status,
        evaluation.c.custom,
        evaluation_ratio.c.ratio,
        evaluation_ratio.c.ratio_low,
        evaluation_ratio.c.ratio_high,
    )
    .select_from(program)
    .join(instance, instance.c.program == program.c.id)
    .join(ticket, and_(ticket.c.run == bindparam("run"), ticket.c.instance == instance.c.id))
    .join(run, run.c.id == ticket.c.run)
    .join(evaluation, evaluation.c.ticket == ticket.c.id)
    .outerjoin(evaluation_ratio, evaluations.TO_BASELINE)
    .where(
        program.c.digest == bindparam("of"),
        ticket.c.operator != OPPONENT,
        ticket.c.fidelity == Fidelity.SEARCH.value,
        *(evaluation.c.status != status for status in SAYS_NOTHING),  # IN is expanded each time
        # What is judged and not told yet will have its turn: a resume tells in the same order.
        or_(ticket.c.state == TicketState.TOLD.value, ticket.c.id == bindparam("ticket")),
    )
    .order_by(instance.c.id, ticket.c.sequence)
)
_WORST = ("error", "memory_bytes")  # descriptors
_parent = program.alias("parent")
_PARENTS = (
    select(_parent.c.digest)
    .join(ticket_parent, ticket_parent.c.program == _parent.c.id)
    .where(
        ticket_parent.c.ticket == bindparam("maker"),
        ticket_parent.c.role == "selected",
    )
    .order_by(ticket_parent.c.position)
)


def of_program(connection: Connection, run_id: int, told: Ticket) -> Elite | None:
    """The elite that a ticket's program makes, with its verdict that is about to be told.

    An instance that any full evaluation found wrong, or not custom, counts no more. None if no
    instance is left.
    """
    proposal, verdict = told.proposal, told.evaluation
    if proposal is None or verdict is None:
        raise ValueError(f"ticket {told.sequence} has no verdict")
    digest = proposal.program.digest
    key = {"run": run_id, "of": digest, "ticket": told.id}
    rows = [row for row in connection.execute(_JUDGED, key) if _says_something(row)]
    instances = [list(of) for _, of in groupby(rows, lambda row: row.assignment)]
    held = [of for of in instances if all(map(_is_timed, of))]
    if not held:
        return None
    fitness = [pooled([_fitness(row) for row in of]) for of in held]
    best = max(range(len(held)), key=lambda index: (fitness[index].value, -held[index][0].sequence))
    first = held[best][0]
    verdicts = [
        verdict if row.id == told.id else evaluations.of_ticket(connection, row.id, samples=False)
        for row in held[best]
    ]
    return Elite(
        program=digest,
        assignment=programs.decode_assignment(first.assignment),
        fitness=fitness[best],
        descriptors=_descriptors(verdicts, first.baseline) | {"log_speedup": fitness[best].value},
        sequence=first.sequence,
        tunings=first.tunings,
        operator=first.operator,
        parents=told.parents if first.maker == told.id else _parents(connection, first.maker),
        evaluations=len(held[best]),
    )


def of_instance(connection: Connection, run_id: int, told: Ticket) -> Interval | None:
    """The fitness of a ticket's instance, pooled with its verdict that is about to be told.

    None if a full evaluation found it wrong, or not custom.
    """
    proposal = told.proposal
    if proposal is None:
        raise ValueError(f"ticket {told.sequence} holds no proposal")
    key = {"run": run_id, "of": proposal.program.digest, "ticket": told.id}
    rows = [
        row
        for row in connection.execute(_JUDGED, key)
        if programs.decode_assignment(row.assignment) == dict(proposal.assignment)
        and _says_something(row)
    ]
    return pooled([*map(_fitness, rows)]) if rows and all(map(_is_timed, rows)) else None


def _descriptors(verdicts: Sequence[Evaluation | None], baseline: str) -> dict[str, float | str]:
    """Those of the first verdict, for builds are kept; times on average, errors at their worst."""
    known = [behaviour(each, baseline) for each in verdicts if each is not None]
    cases = {
        name: statistics.fmean(float(each[name]) for each in known if name in each)
        for name in known[0]
        if name.startswith(CASE)
    }
    worst = {"worst_case": min(cases.values())} if cases else {}
    return known[0] | cases | worst | _largest(known) | _speed_of_light(known)


def _largest(known: Sequence[Mapping[str, float | str]]) -> dict[str, float]:
    """The worst value of all evaluations."""
    found = {name: [each[name] for each in known if name in each] for name in _WORST}
    return {name: max(map(float, values)) for name, values in found.items() if values}


def _speed_of_light(known: Sequence[Mapping[str, float | str]]) -> dict[str, float]:
    """The share of times that the device could do: the geometric mean, as times are pooled."""
    shares = [each["speed_of_light"] for each in known if "speed_of_light" in each]
    logs = [math.log(share) for share in shares if isinstance(share, float) and share > 0]
    return {"speed_of_light": math.exp(statistics.fmean(logs))} if len(logs) > 1 else {}


def _parents(connection: Connection, maker: int) -> tuple[str, ...]:
    """The programs selected for a ticket."""
    return tuple(connection.execute(_PARENTS, {"maker": maker}).scalars())


def _says_something(row: Row[Any]) -> bool:
    unknown = row.custom is None or (row.custom and row.ratio is None)
    return not (row.status == Status.CORRECT.value and unknown)


def _is_timed(row: Row[Any]) -> bool:
    return row.status == Status.CORRECT.value and bool(row.custom)


def _fitness(row: Row[Any]) -> Interval:
    return Ratio(row.ratio, row.ratio_low, row.ratio_high).log()
