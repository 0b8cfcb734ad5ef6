"""Tickets: asked, replied, proposed, evaluated, told; each transition checked against the row."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, select, update
from sqlalchemy.sql.dml import ReturningUpdate

from evolve.core.errors import StoreError
from evolve.core.evaluation import Evaluation, Fidelity
from evolve.core.model import (
    CallStatus,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
)
from evolve.core.protocols import Elite, Failed, Offer, Proposal
from evolve.core.records import Credit, Ticket, TicketState
from evolve.store.database import lease, schema
from evolve.store.database.schema import (
    run,
    ticket,
    ticket_parent,
)
from evolve.store.tables import (
    archive,
    arms,
    calls,
    evaluations,
    parent_stats,
    programs,
    requests,
    runs,
    stored_tickets,
)

_PUT = insert(ticket).returning(ticket.c.id)
_PUT_PARENTS = insert(ticket_parent)
_UNSELECT = delete(ticket_parent).where(
    ticket_parent.c.ticket == bindparam("of"), ticket_parent.c.role == "selected"
)
_CURRENT = (
    select(ticket, run.c.name.label("run_name"), run.c.baseline, schema.lease.c.owner)
    .join(run, run.c.id == ticket.c.run)
    .outerjoin(schema.lease, schema.lease.c.run == ticket.c.run)
    .where(ticket.c.id == bindparam("ticket"))
)
_active_s = select(run.c.active_s).where(run.c.id == ticket.c.run).scalar_subquery()
_baseline = select(run.c.baseline).where(run.c.id == ticket.c.run).scalar_subquery()
_THIS = update(ticket).where(ticket.c.id == bindparam("ticket"))
_OURS = _THIS.where(ticket.c.state == bindparam("before"), lease.is_ours(ticket.c.run))
_PROPOSED = _THIS.values(
    state=TicketState.PROPOSED.value,
    **{name: bindparam(f"new_{name}") for name in ("instance", "fidelity", "note", "again")},
)
_STATE = _THIS.values(state=bindparam("now"))
_STARTED = _OURS.values(attempts=ticket.c.attempts + 1).returning(ticket.c.attempts)
_EVALUATED = _OURS.values(state=TicketState.EVALUATED.value).returning(
    ticket.c.run, ticket.c.operator, ticket.c.instance, ticket.c.attempts
)
_TOLD = _OURS.values(
    state=TicketState.TOLD.value, failure=bindparam("reason"), elapsed_s=_active_s
).returning(
    *(ticket.c[name] for name in ("id", "run", "operator", "model", "method")),
    _baseline.label("baseline"),
)
_WITHDRAWN = _THIS.where(ticket.c.attempts > 0).values(attempts=ticket.c.attempts - 1)


def ask(
    connection: Connection,
    run_id: int,
    owner: str,
    operator: str,
    parents: Sequence[str],
    *,
    model: str = "",
    method: str = "",
    tuning: bool = False,
) -> Ticket:
    """Open the next ticket of a run."""
    sequence, tunings = runs.next_sequence(connection, run_id, owner, tuning=tuning)
    asked = Ticket(
        id=0,
        sequence=sequence,
        tuning=tuning,
        tunings=tunings,
        state=TicketState.ASKED,
        operator=operator,
        parents=tuple(parents),
        model=model,
        method=method,
    )
    return opened(connection, run_id, asked)


def opened(connection: Connection, run_id: int, item: Ticket) -> Ticket:
    """The ticket as it is stored now, with its proposal if it has one."""
    row = {
        "run": run_id,
        "sequence": item.sequence,
        "operator": item.operator,
        "model": item.model,
        "method": item.method,
        "tuning": int(item.tuning),
        "tunings": item.tunings,
        "state": item.state.value,
    }
    used: tuple[str, ...] = ()
    if item.proposal is not None:
        used = item.proposal.parents
        row |= _proposed(connection, item.proposal)
    identity: int = connection.execute(_PUT, row).scalar_one()
    found = _put_parents(connection, identity, selected=item.parents, used=used)
    if item.parents:
        parent_stats.count_asked(connection, run_id, found[item.parents[0]])
    return replace(item, id=identity)


def request(
    connection: Connection,
    run_id: int,
    owner: str,
    operator: str,
    parents: Sequence[str],
    item: ModelRequest,
    *,
    model: str,
    method: str,
) -> list[Ticket]:
    """Open the next tickets of a run, one for each sample of a request to a model."""
    opened = []
    for _ in range(item.samples):
        asked = ask(connection, run_id, owner, operator, parents, model=model, method=method)
        sample = requests.put(connection, run_id, asked.id, operator, 0, item)
        opened.append(replace(asked, request=replace(item, samples=1), sample=sample))
    return opened


def recompose(
    connection: Connection, asked: Ticket, owner: str, parents: Sequence[str], item: ModelRequest
) -> Ticket:
    """Let another text stand for the first request of a ticket, which nothing has answered."""
    row, texts = _first_texts(connection, asked, owner)
    known = next((text for text in texts if text.key == item.key), None)
    if known is None:
        _replace_text(connection, row, texts, parents)
        number = len(texts)
        requests.put(connection, row.run, row.id, row.operator, 0, item, revision=number)
    else:
        _restore_text(connection, row, texts, known)
    return stored_tickets.load(connection, row)


def answer(
    connection: Connection, asked: Ticket, owner: str, reply: ModelReply, key: str
) -> Ticket:
    """Store a reply that was obtained elsewhere, to the text of this key (`""`: the open one).

    That text stands again, with the parents that it was about.
    """
    if key and asked.request is not None and key != asked.request.key:
        row, texts = _first_texts(connection, asked, owner)
        _restore_text(connection, row, texts, next(text for text in texts if text.key == key))
    call = begin_call(connection, asked, owner, Reservation(tokens=0, usd=0.0))
    return end_call(connection, call, owner, reply)


def _first_texts(
    connection: Connection, asked: Ticket, owner: str
) -> tuple[Row[Any], Sequence[Row[Any]]]:
    row = _current(connection, asked, owner)
    _require(row, TicketState.ASKED, "asked anew for")
    texts = requests.texts_of(connection, asked.id)
    if not texts or texts[-1].round:
        raise StoreError(f"ticket {row.sequence} of run {row.run_name!r} has no first request open")
    return row, texts


def _restore_text(
    connection: Connection, row: Row[Any], texts: Sequence[Row[Any]], known: Row[Any]
) -> None:
    if known.replaced is not None:
        _replace_text(connection, row, texts, requests.restore(connection, known))


def _replace_text(
    connection: Connection, row: Row[Any], texts: Sequence[Row[Any]], parents: Sequence[str]
) -> None:
    """Take the text that stands away, and give the ticket the parents of the one that follows."""
    standing = next(text for text in texts if text.replaced is None)
    before = stored_tickets.load(connection, row).parents
    requests.replace(connection, standing.id, before)
    connection.execute(_UNSELECT, {"of": row.id})
    found = _put_parents(connection, row.id, selected=parents)
    if before:
        parent_stats.uncount_asked(connection, row.run, programs.find(connection, before[0]))
    if parents:
        parent_stats.count_asked(connection, row.run, found[parents[0]])


def propose(
    connection: Connection,
    asked: Ticket,
    owner: str,
    outcome: Proposal | Failed | ModelRequest,
    reading: ReplyStatus | None,
) -> Ticket:
    """Record what the operator made, of a reply if there is one.

    A failure ends the ticket; a request opens its next round.
    """
    row = _current(connection, asked, owner)
    rounds = requests.rows_of(connection, asked.id) if row.model else ()
    _require(row, TicketState.REPLIED if rounds else TicketState.ASKED, "proposed for")
    if reading is not None:
        requests.set_reading(connection, rounds[-1].id, reading)
    if isinstance(outcome, ModelRequest):
        _put_state(connection, asked.id, TicketState.ASKED)
        sample = requests.put(connection, row.run, asked.id, row.operator, len(rounds), outcome)
        return replace(asked, state=TicketState.ASKED, request=outcome, sample=sample)
    if isinstance(outcome, Failed):
        _put_parents(connection, asked.id, used=outcome.parents)
        runs.count_proposal(connection, row.run, row.operator, tuning=bool(row.tuning))
        parent_stats.count_told(connection, row, failed=True, score=None)
        _moved(connection, _TOLD, asked, owner, TicketState(row.state), reason=outcome.reason)
        arms.count(connection, row, 0.0, None)
        return replace(asked, state=TicketState.TOLD, failure=outcome.reason)
    runs.count_proposal(connection, row.run, row.operator, tuning=bool(row.tuning))
    _put_parents(connection, asked.id, used=outcome.parents)
    told = _proposed(connection, outcome)
    connection.execute(_PROPOSED, {"ticket": asked.id} | {f"new_{n}": v for n, v in told.items()})
    return replace(asked, state=TicketState.PROPOSED, proposal=outcome)


def record(
    connection: Connection,
    run_id: int,
    owner: str,
    operator: str,
    parents: Sequence[str],
    outcome: Proposal | Failed,
    *,
    method: str,
    tuning: bool,
) -> Ticket:
    """`ask` and `propose` at once; what has just been written is not read again."""
    if isinstance(outcome, Failed):
        asked = ask(connection, run_id, owner, operator, parents, method=method, tuning=tuning)
        return propose(connection, asked, owner, outcome, None)
    sequence, tunings = runs.next_sequence(
        connection, run_id, owner, proposed_by=operator, tuning=tuning
    )
    proposed = Ticket(
        id=0,
        sequence=sequence,
        tuning=tuning,
        tunings=tunings,
        state=TicketState.PROPOSED,
        operator=operator,
        parents=tuple(parents),
        method=method,
        proposal=outcome,
    )
    return opened(connection, run_id, proposed)


def _proposed(connection: Connection, item: Proposal) -> dict[str, Any]:
    """The columns of a ticket for its proposal, whose instance is stored now."""
    return {
        "instance": programs.put_instance(connection, item.program, item.assignment),
        "fidelity": item.fidelity.value,
        "note": item.note,
        "again": int(item.is_reevaluation),
    }


def begin_call(connection: Connection, asked: Ticket, owner: str, worst: Reservation) -> int:
    """Commit a call for the open round of a ticket; returns the call's id."""
    row = _current(connection, asked, owner)
    _require(row, TicketState.ASKED, "called for")
    rounds = requests.rows_of(connection, asked.id)
    if not rounds:
        raise StoreError(f"ticket {row.sequence} of run {row.run_name!r} asks nothing of a model")
    return calls.begin(connection, row.run, rounds[-1].id, worst)


def end_call(connection: Connection, call: int, owner: str, reply: ModelReply) -> Ticket:
    """Store the result of a call; a call that has ended keeps its first outcome."""
    row = connection.execute(_CURRENT, {"ticket": calls.ticket_of(connection, call)}).one()
    lease.fence(row.owner, owner, row.run_name)
    if calls.end(connection, call, reply) and reply.status is not CallStatus.UNAVAILABLE:
        _put_state(connection, row.id, TicketState.REPLIED)
    return stored_tickets.load(connection, connection.execute(_CURRENT, {"ticket": row.id}).one())


def start_evaluation(connection: Connection, proposed: Ticket, owner: str) -> int:
    """Count an attempt at evaluating; returns how many there are with this one."""
    row = _moved(connection, _STARTED, proposed, owner, TicketState.PROPOSED)
    if row is None:
        row = _current(connection, proposed, owner)
        raise _refusal(row, TicketState.PROPOSED, "evaluated for")
    return int(row.attempts)


def withdraw_evaluation(connection: Connection, proposed: Ticket, owner: str) -> None:
    """Take a start back: the evaluation was given up for our own reasons, not the candidate's."""
    _current(connection, proposed, owner)
    connection.execute(_WITHDRAWN, {"ticket": proposed.id})


def evaluated(connection: Connection, proposed: Ticket, owner: str, item: Evaluation) -> Ticket:
    """Record the verdict; a ticket that has one keeps it."""
    row = _moved(connection, _EVALUATED, proposed, owner, TicketState.PROPOSED)
    if row is None:
        known = _current(connection, proposed, owner)
        if known.instance is None:
            raise _refusal(known, TicketState.PROPOSED, "evaluated for")
        return stored_tickets.load(connection, known)
    evaluations.put(connection, proposed.id, row.instance, item)
    runs.count_evaluation(connection, row.run, row.operator, item)
    return replace(proposed, state=TicketState.EVALUATED, evaluation=item, attempts=row.attempts)


def tell(
    connection: Connection,
    judged: Ticket,
    owner: str,
    elite: Elite | None,
    offer: Offer | None,
    credit: Credit | None,
) -> None:
    """Close the ticket with the fate of its elite; a closed ticket stays as it is."""
    if (elite is None) != (offer is None):
        raise ValueError("tell needs both an elite and the archive's offer, or neither")
    row = _moved(connection, _TOLD, judged, owner, TicketState.EVALUATED, reason="")
    if row is None:
        current = _current(connection, judged, owner)
        if current.state == TicketState.TOLD:
            return
        raise _refusal(current, TicketState.EVALUATED, "told for")
    verdict = _count_told(connection, row, judged)
    if elite is not None and offer is not None:
        program_id = archive.record(connection, row.run, judged.id, elite, offer)
        parent = elite.parents[0] if elite.parents else None
        value = elite.fitness.value if elite.evaluations else None
        is_tuned = judged.parents[:1] == (elite.program,)
        parent_stats.settle(connection, row.run, program_id, parent, value, tuned=is_tuned)
    own = credit if credit is not None and credit.ticket == judged.id else None
    # Times that took no time were known before: of an arm's costs and gains that says nothing.
    known = bool(verdict.ratios) and not verdict.device_time_s
    arms.count(connection, row, verdict.device_time_s, own, told=0 if known else 1)
    if credit is not None and own is None:
        arms.correct(connection, credit)


def _current(connection: Connection, item: Ticket, owner: str) -> Row[Any]:
    row = connection.execute(_CURRENT, {"ticket": item.id}).one()
    lease.fence(row.owner, owner, row.run_name)
    return row


def _moved(
    connection: Connection,
    change: ReturningUpdate[Any],
    item: Ticket,
    owner: str,
    before: TicketState,
    **values: str,
) -> Row[Any] | None:
    """The result of a change; None if the ticket is in another state, or of another process."""
    key = {"ticket": item.id, "holder": owner, "before": before.value}
    return connection.execute(change, key | values).one_or_none()


def _count_told(connection: Connection, row: Row[Any], judged: Ticket) -> Evaluation:
    """Count what came of the main parent; returns the verdict."""
    verdict = judged.evaluation
    if verdict is None or judged.proposal is None:
        raise ValueError(f"ticket {judged.sequence} has no verdict to be told")
    failed = evaluations.refutes(verdict)
    whole = judged.proposal.fidelity is Fidelity.SEARCH
    fitness = verdict.fitness(row.baseline) if whole else None
    score = None if fitness is None else fitness.value
    parent_stats.count_told(connection, row, failed=failed, score=score)
    return verdict


def _put_state(connection: Connection, ticket_id: int, state: TicketState) -> None:
    connection.execute(_STATE, {"ticket": ticket_id, "now": state.value})


def _require(row: Row[Any], state: TicketState, verb: str) -> None:
    if row.state != state:
        raise _refusal(row, state, verb)


def _refusal(row: Row[Any], state: TicketState, verb: str) -> StoreError:
    return StoreError(
        f"nothing can be {verb} ticket {row.sequence} of run {row.run_name!r}: "
        f"it is {row.state}, not {state}"
    )


def _put_parents(connection: Connection, identity: int, **roles: Sequence[str]) -> dict[str, int]:
    """Record the parents (digests) of a ticket by role; returns their ids."""
    digests = dict.fromkeys(digest for parents in roles.values() for digest in parents)
    found = {digest: programs.find(connection, digest) for digest in digests}
    rows = [
        {"ticket": identity, "role": role, "position": position, "program": found[digest]}
        for role, parents in roles.items()
        for position, digest in enumerate(parents)
    ]
    if rows:
        connection.execute(_PUT_PARENTS, rows)
    return found
