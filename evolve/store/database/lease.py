"""One writer per run: a lease with a heartbeat, which fences off a process that lost it."""

import os
import socket
import time
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, exists, select, update

from evolve.core.errors import StoreError, UsageError
from evolve.store.database.dialect import upsert
from evolve.store.database.schema import lease, run

TTL_S = 30.0
"""A heartbeat older than this frees the run for another process."""

_TAKE = upsert(lease)
_TAKE = _TAKE.on_conflict_do_update(
    index_elements=[lease.c.run],
    set_={name: _TAKE.excluded[name] for name in ("owner", "host", "machine", "pid", "heartbeat")},
)
HOLDERS = select(lease, run.c.name).join(run, run.c.id == lease.c.run)
_HOLDER = HOLDERS.where(lease.c.run == bindparam("held"))
_BEAT = (
    update(lease)
    .where(lease.c.run == bindparam("held"), lease.c.owner == bindparam("holder"))
    .values(heartbeat=bindparam("now"))
)


def take(connection: Connection, run_id: int, owner: str) -> None:
    """Become the holder of the lease, of whom nothing else is alive; the run counts as running."""
    row = {
        "run": run_id,
        "owner": owner,
        "host": socket.gethostname(),
        "machine": machine(),
        "pid": os.getpid(),
        "heartbeat": time.time(),
    }
    connection.execute(_TAKE, row)
    connection.execute(update(run).where(run.c.id == run_id).values(state="running", reason=""))


def refuse_if_held(connection: Connection, run_id: int, owner: str) -> None:
    """Raise UsageError if another live process continues this run, as its heartbeat says."""
    holder = connection.execute(_HOLDER, {"held": run_id}).one_or_none()
    if holder is not None and holder.owner != owner and not is_gone(holder):
        raise refusal(holder)


def refuse(connection: Connection, run_id: int) -> None:
    """Raise UsageError, for another live process is known to continue this run."""
    holder = connection.execute(_HOLDER, {"held": run_id}).one_or_none()
    if holder is not None:
        raise refusal(holder)
    raise UsageError(f"run {run_id} is being taken by another process; wait for it or stop it")


def refusal(holder: Row[Any]) -> UsageError:
    """The error of a claim on a run that a live process continues (the row of its lease)."""
    age = max(0.0, time.time() - holder.heartbeat)
    return UsageError(
        f"run {holder.name!r} is being continued by another process on {holder.host} "
        f"(pid {holder.pid}, last heartbeat {age:.0f} s ago); wait for it or stop it first"
    )


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
    if holder.machine != machine() or not holder.machine:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it lives, under another user
    return False


def machine() -> str:
    """Where a pid means something: this boot and this pid namespace; "" where none can be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
