"""Costs and gains of each operator with each model: sums for schedulers."""

from typing import Any

from sqlalchemy import Connection, Row, and_, bindparam, case, select, update

from evolve.core.measurement import Interval
from evolve.core.records import Arm, Credit
from evolve.store.database.dialect import total, upsert
from evolve.store.database.schema import arm, call, credit, request, ticket

_KEY = ("run", "method", "operator", "model")

_SUMS = ("told", "tokens", "usd", "unpriced_tokens", "device_time_s", "gain", "lead")

_unpriced = case((call.c.usd.is_(None), call.c.tokens), else_=0)
_CALLS = (
    select(
        total(call.c.tokens).label("tokens"),
        total(call.c.usd).label("usd"),
        total(_unpriced).label("unpriced_tokens"),
    )
    .join(request, request.c.id == call.c.request)
    .where(request.c.ticket == bindparam("ticket"))
)
_NO_CALLS = {"tokens": 0, "usd": 0.0, "unpriced_tokens": 0}
_COUNT = upsert(arm)
_COUNT = _COUNT.on_conflict_do_update(
    index_elements=[arm.c.run, arm.c.method, arm.c.operator, arm.c.model],
    set_={name: arm.c[name] + _COUNT.excluded[name] for name in _SUMS},
)
_CREDITED = (
    select(
        *(ticket.c[name] for name in _KEY),
        credit.c.gain,
        credit.c.lead,
    )
    .join(credit, credit.c.ticket == ticket.c.id)
    .where(ticket.c.id == bindparam("ticket"))
)
_CREDIT = upsert(credit)
_CREDIT = _CREDIT.on_conflict_do_update(
    index_elements=[credit.c.ticket],
    set_={name: _CREDIT.excluded[name] for name in ("gain", "lead")},
)
_CORRECT = (
    update(arm)
    .where(*(arm.c[name] == bindparam(f"of_{name}") for name in _KEY))
    .values(gain=arm.c.gain + bindparam("more_gain"), lead=arm.c.lead + bindparam("more_lead"))
)
_maker = ticket.alias("maker")
_OF_INSTANCE = (
    select(credit)
    .join(_maker, _maker.c.id == credit.c.ticket)
    .join(ticket, and_(ticket.c.run == _maker.c.run, ticket.c.instance == _maker.c.instance))
    .where(ticket.c.id == bindparam("ticket"))
    .order_by(_maker.c.id)
    .limit(1)
)
_OF_RUN = (
    select(arm)
    .where(arm.c.run == bindparam("run"))
    .order_by(arm.c.method, arm.c.operator, arm.c.model)
)


def count(
    connection: Connection,
    closed: Row[Any],
    device_time_s: float,
    item: Credit | None,
    *,
    told: int = 1,
) -> None:
    """Add a ticket (its row) that is told now, with its own credit.

    `told` is 0 if its verdict was known before.
    """
    calls = connection.execute(_CALLS, {"ticket": closed.id}).one() if closed.model else None
    sums = _NO_CALLS if calls is None else calls._asdict()
    row = sums | {
        "run": closed.run,
        "method": closed.method,
        "operator": closed.operator,
        "model": closed.model,
        "told": told,
        "device_time_s": device_time_s,
        "gain": item.gain if item else 0.0,
        "lead": item.lead if item else 0.0,
    }
    connection.execute(_COUNT, row)
    if item is not None:
        connection.execute(_CREDIT, _credit_row(item))


def correct(connection: Connection, item: Credit) -> None:
    """Keep the current credit of an earlier ticket, and correct the sums of its arm."""
    before = connection.execute(_CREDITED, {"ticket": item.ticket}).one()
    connection.execute(_CREDIT, _credit_row(item))
    key = {f"of_{name}": getattr(before, name) for name in _KEY}
    more = {"more_gain": item.gain - before.gain, "more_lead": item.lead - before.lead}
    connection.execute(_CORRECT, key | more)


def _credit_row(item: Credit) -> dict[str, float]:
    bounds = {
        f"{name}{end}": getattr(interval, bound)
        for name, interval in (("parent", item.parent), ("leader", item.leader))
        for end, bound in (("", "value"), ("_low", "low"), ("_high", "high"))
    }
    return bounds | {"ticket": item.ticket, "gain": item.gain, "lead": item.lead}


def credit_of(connection: Connection, ticket_id: int) -> Credit | None:
    """The credit of the first ticket of the same run and instance, if any."""
    row = connection.execute(_OF_INSTANCE, {"ticket": ticket_id}).one_or_none()
    if row is None:
        return None
    return Credit(
        ticket=row.ticket,
        parent=Interval(row.parent, row.parent_low, row.parent_high),
        leader=Interval(row.leader, row.leader_low, row.leader_high),
        gain=row.gain,
        lead=row.lead,
    )


def of_run(connection: Connection, run_id: int) -> list[Arm]:
    """Every combination of method, operator and model that a run has told tickets of."""
    return [
        Arm(
            operator=row.operator,
            model=row.model,
            told=row.told,
            tokens=row.tokens,
            usd=row.usd,
            unpriced_tokens=row.unpriced_tokens,
            device_time_s=row.device_time_s,
            gain=row.gain,
            lead=row.lead,
            method=row.method,
        )
        for row in connection.execute(_OF_RUN, {"run": run_id})
    ]
