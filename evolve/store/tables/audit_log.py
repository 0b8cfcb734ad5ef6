"""The audit log. Rows are added; triggers refuse everything else."""

from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Connection, bindparam, insert, select

from evolve.core.records import AuditEntry
from evolve.store.database.schema import audit_log
from evolve.store.database.user import current_host, current_user

_FIELDS = ("time", "user", "host", "action", "run", "detail")
_NEWEST = select(audit_log).order_by(audit_log.c.id.desc()).limit(bindparam("limit"))


def add(connection: Connection, action: str, run: str = "", detail: str = "") -> None:
    """An entry of this process's user, now."""
    row: Mapping[str, str] = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "user": current_user(),
        "host": current_host(),
        "action": action,
        "run": run,
        "detail": detail,
    }
    connection.execute(insert(audit_log), dict(row))


def newest(connection: Connection, limit: int, run: str | None) -> list[AuditEntry]:
    """The last entries in order of time, of one run or of all."""
    query = _NEWEST if run is None else _NEWEST.where(audit_log.c.run == run)
    rows = connection.execute(query, {"limit": limit}).mappings().all()
    return [AuditEntry(**{name: row[name] for name in _FIELDS}) for row in reversed(rows)]
