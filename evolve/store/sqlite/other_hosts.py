"""Between hosts the locks of SQLite are not to be relied on, whichever runs they continue."""

import socket

from sqlalchemy import Connection

from evolve.core.errors import UsageError
from evolve.store.database.lease import HOLDERS, is_gone, machine


def refuse_other_hosts(connection: Connection) -> None:
    """Raise UsageError if a process on another host works in a file without a write-ahead log."""
    if connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal":
        return
    here = _host_of(machine(), socket.gethostname())
    for holder in connection.execute(HOLDERS):
        if _host_of(holder.machine, holder.host) != here and not is_gone(holder):
            raise UsageError(
                f"a process on {holder.host} (pid {holder.pid}) continues run {holder.name!r} in "
                "this database, which without a write-ahead log is for one host at a time; wait "
                "for it or stop it first, or take another store.path here"
            )


def _host_of(machine: str, host: str) -> str:
    """The boot of a machine, which its containers share; its name where it tells none."""
    return machine.partition(" ")[0] or host
