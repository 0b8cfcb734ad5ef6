"""What each operator has cost and brought with each model: sums for schedulers."""

from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, func, select
from sqlalchemy.dialects.sqlite import insert

from evolve.store.rows import Arm
from evolve.store.schema import arm, call, request

_SUMS = ("told", "tokens", "usd", "unpriced_tokens", "device_time_s", "gain", "lead")

_unpriced = case((call.c.usd.is_(None), call.c.tokens), else_=0)
_CALLS = (
    select(
        func.coalesce(func.sum(call.c.tokens), 0).label("tokens"),
        func.coalesce(func.sum(call.c.usd), 0.0).label("usd"),
        func.coalesce(func.sum(_unpriced), 0).label("unpriced_tokens"),
    )
    .join(request, request.c.id == call.c.request)
    .where(request.c.ticket == bindparam("ticket"))
)
_NO_CALLS = {"tokens": 0, "usd": 0.0, "unpriced_tokens": 0}
_COUNT = insert(arm)
_COUNT = _COUNT.on_conflict_do_update(
    index_elements=[arm.c.run, arm.c.method, arm.c.operator, arm.c.model],
    set_={name: arm.c[name] + _COUNT.excluded[name] for name in _SUMS},
)
_OF_RUN = (
    select(arm)
    .where(arm.c.run == bindparam("run"))
    .order_by(arm.c.method, arm.c.operator, arm.c.model)
)


def count(
    connection: Connection, told: Row[Any], device_time_s: float, gain: float, lead: float
) -> None:
    """Add a ticket (its row) that is told now."""
    calls = connection.execute(_CALLS, {"ticket": told.id}).one() if told.model else None
    sums = _NO_CALLS if calls is None else calls._asdict()
    row = sums | {
        "run": told.run,
        "method": told.method,
        "operator": told.operator,
        "model": told.model,
        "told": 1,
        "device_time_s": device_time_s,
        "gain": gain,
        "lead": lead,
    }
    connection.execute(_COUNT, row)


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
