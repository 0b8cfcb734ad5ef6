"""One writer per run: a lease with a heartbeat, which fences off a process that lost it."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, exists, select, update
from sqlalchemy.dialects.sqlite import insert

from evolve.core.errors import StoreError, UsageError
from evolve.store.database.schema import lease, run

TTL_S = 30.0
"""A heartbeat older than this frees the run for another process."""

_TAKE = insert(lease)
_TAKE = _TAKE.on_conflict_do_update(
    index_elements=[lease.c.run],
    set_={name: _TAKE.excluded[name] for name in ("owner", "host", "machine", "pid", "heartbeat")},
)
_HOLDERS = select(lease, run.c.name).join(run, run.c.id == lease.c.run)
_HOLDER = _HOLDERS.where(lease.c.run == bindparam("held"))
_BEAT = (
    update(lease)
    .where(lease.c.run == bindparam("held"), lease.c.owner == bindparam("holder"))
    .values(heartbeat=bindparam("now"))
)


def claim(connection: Connection, run_id: int, owner: str) -> None:
    """Take the lease, also from a holder that is gone.

    Raises:
        UsageError: another process holds it and is alive, as far as can be told.
    """
    refuse_if_held(connection, run_id, owner)
    refuse_other_hosts(connection)
    row = {
        "run": run_id,
        "owner": owner,
        "host": socket.gethostname(),
        "machine": _machine(),
        "pid": os.getpid(),
        "heartbeat": time.time(),
    }
    connection.execute(_TAKE, row)


def refuse_if_held(connection: Connection, run_id: int, owner: str) -> None:
    """Raise UsageError if another live process continues this run."""
    holder = connection.execute(_HOLDER, {"held": run_id}).one_or_none()
    if holder is None or holder.owner == owner or is_gone(holder):
        return
    age = max(0.0, time.time() - holder.heartbeat)
    raise UsageError(
        f"run {holder.name!r} is being continued by another process on {holder.host} "
        f"(pid {holder.pid}, last heartbeat {age:.0f} s ago); wait for it or stop it first"
    )


def refuse_other_hosts(connection: Connection) -> None:
    """Raise UsageError if a process on another host works in a file without a write-ahead log.

    The locks of SQLite are not to be relied on between hosts, whichever runs they continue.
    """
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal":
        return
    here = _host_of(_machine(), socket.gethostname())
    for holder in connection.execute(_HOLDERS):
        if _host_of(holder.machine, holder.host) != here and not is_gone(holder):
            raise UsageError(
                f"a process on {holder.host} (pid {holder.pid}) continues run {holder.name!r} in "
                "this database, which without a write-ahead log is for one host at a time; wait "
                "for it or stop it first, or take another store.path here"
            )


def _host_of(machine: str, host: str) -> str:
    """The boot of a machine, which its containers share; its name where it tells none."""
    return machine.partition(" ")[0] or host


def beat(connection: Connection, run_id: int, owner: str) -> None:
    """Show that the holder lives.

    Raises:
        StoreError: this process does not (or no longer) hold the lease.
    """
    given = {"held": run_id, "holder": owner, "now": time.time()}
    if not connection.execute(_BEAT, given).rowcount:
        raise StoreError(f"the lease on run {run_id} is not held here; claim the run first")


def give_up(connection: Connection, run_id: int, owner: str) -> None:
    """Free the run for others."""
    connection.execute(delete(lease).where(lease.c.run == run_id, lease.c.owner == owner))


def is_ours(run_id: "ColumnElement[int]") -> ColumnElement[bool]:
    """For a statement that changes something of a run: none but `holder` continues it.

    If it changed nothing, `fence` or `fence_run` says why.
    """
    return ~exists().where(lease.c.run == run_id, lease.c.owner != bindparam("holder"))


def fence_run(connection: Connection, run_id: int, owner: str) -> None:
    """`fence`, for a run by its number."""
    holder = connection.execute(_HOLDER, {"held": run_id}).one_or_none()
    if holder is not None:
        fence(holder.owner, owner, holder.name)


def fence(holder: str | None, owner: str, run_name: str) -> None:
    """Refuse a write to a run that another process continues, perhaps only since a moment."""
    if holder is not None and holder != owner:
        raise StoreError(
            f"run {run_name!r} is being continued by another process (this one never claimed it, "
            f"or lost it after {TTL_S:.0f} s without a heartbeat); nothing is written from here"
        )


def is_gone(holder: Row[Any]) -> bool:
    """Whether a lease (its row) is of a process that has died here, or is silent for too long."""
    if time.time() - holder.heartbeat > TTL_S:
        return True
    if holder.machine != _machine() or not holder.machine:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, under another user
    return False


def _machine() -> str:
    """Where a pid means something: this boot and this pid namespace; "" where none can be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
