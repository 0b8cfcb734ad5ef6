"""Quotas by user and project, and the spending of the runs of each."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, delete, func, insert, or_, select

from evolve.core.records import Account, Allowance, Quota, Spending
from evolve.store.database.dialect import json_text, total, upsert
from evolve.store.database.schema import charge, quota, run
from evolve.store.database.user import current_user
from evolve.store.tables import audit_log

DAY = len("2026-01-01")
_judged = func.coalesce(json_text(run.c.config, "device", "kind"), "") != "replay"
_asked = func.coalesce(json_text(run.c.config, "llm", "kind"), "") != "replay"
_SPENT = select(
    total(case((_asked, run.c.usd + run.c.usd_reserved), else_=0.0)).label("usd"),
    total(case((_asked, run.c.unpriced), else_=0)).label("unpriced"),
    total(case((_judged, run.c.device_time_s), else_=0.0)).label("device_time_s"),
)
_COLUMNS = {"user": run.c.started_by, "project": run.c.project}
_CHARGED = select(total(charge.c.device_time_s))
_CHARGE = upsert(charge)
_CHARGE = _CHARGE.on_conflict_do_update(
    index_elements=[charge.c.day, charge.c.user, charge.c.project],
    set_={"device_time_s": charge.c.device_time_s + _CHARGE.excluded.device_time_s},
)


def put(connection: Connection, given: Quota) -> None:
    """Set the quota of an account; without limits it has none from now on."""
    kind, name = given.account
    connection.execute(delete(quota).where(_is_of(given.account)))
    limits = {"usd": given.usd, "device_time_s": given.device_time_s}
    if any(limit is not None for limit in limits.values()):
        row = {"kind": kind, "name": name, "since": given.since} | limits
        connection.execute(insert(quota), row)
    audit_log.add(connection, "quota", detail=_words(given))


def add_charge(connection: Connection, project: str, device_time_s: float) -> None:
    """Count device time that this process's user has spent on no run, today."""
    today = datetime.now(UTC).date().isoformat()
    row = {"day": today, "user": current_user(), "project": project}
    connection.execute(_CHARGE, row | {"device_time_s": device_time_s})


def listing(connection: Connection) -> list[Allowance]:
    """All quotas, with the spending of all their runs."""
    return _with_spending(connection, select(quota), None)


def allowances(connection: Connection, user: str, project: str, but: int | None) -> list[Allowance]:
    """The quotas that a run of this user and project is under; run `but` is left out."""
    whose = or_(_is_of(Account("user", user)), _is_of(Account("project", project)))
    return _with_spending(connection, select(quota).where(whose), but)


def _with_spending(connection: Connection, query: Any, but: int | None) -> list[Allowance]:
    rows = connection.execute(query.order_by(quota.c.kind.desc(), quota.c.name)).all()
    found = [
        Quota(
            account=Account(row.kind, row.name),
            usd=row.usd,
            device_time_s=row.device_time_s,
            since=row.since,
        )
        for row in rows
    ]
    return [Allowance(each, _spent(connection, each, but)) for each in found]


def _spent(connection: Connection, given: Quota, but: int | None) -> Spending:
    kind, name = given.account
    query = _SPENT.where(_COLUMNS[kind] == name, run.c.created >= given.since)
    row = connection.execute(query if but is None else query.where(run.c.id != but)).one()
    served = _CHARGED.where(charge.c[kind] == name, charge.c.day >= given.since[:DAY])
    device_time_s = row.device_time_s + connection.execute(served).scalar_one()
    return Spending(usd=None if row.unpriced else row.usd, device_time_s=device_time_s)


def _is_of(account: Account) -> ColumnElement[bool]:
    return and_(quota.c.kind == account.kind, quota.c.name == account.name)


def _words(given: Quota) -> str:
    limits = [] if given.usd is None else [f"{given.usd:g} USD"]
    limits += [] if given.device_time_s is None else [f"{given.device_time_s:g} device seconds"]
    since = f" since {given.since}" if given.since else ""
    return f"{given.account}: {' and '.join(limits) or 'none'}{since}"
