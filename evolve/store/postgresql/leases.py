"""Runs that this process continues: an advisory lock each, which ends with its connection."""

from collections.abc import Callable

import psycopg

from evolve.store.postgresql.connections import Patience

_TRY = "SELECT pg_try_advisory_lock(hashtext('evolve ' || current_schema()), %s::int)"
_UNLOCK = "SELECT pg_advisory_unlock(hashtext('evolve ' || current_schema()), %s::int)"


class Leases:
    """Locks of one process, on a connection of their own; taken again on a new one if it is cut.

    Args:
        connect: opens a connection.
        patiently: calls again while the server is away.
    """

    def __init__(
        self, connect: "Callable[[], psycopg.Connection[tuple[object]]]", patiently: Patience
    ) -> None:
        self._connect = connect
        self._patiently = patiently
        self._connection: psycopg.Connection[tuple[object]] | None = None
        self._runs: set[int] = set()

    def take(self, run: int) -> bool:
        """Lock a run; False if another process has."""
        if run in self._runs:
            return True
        taken = self._patiently(lambda: self._locked(run))
        if taken:
            self._runs.add(run)
        return taken

    def give_up(self, run: int) -> None:
        """Free a run for others."""
        self._runs.discard(run)
        if self._connection is not None:
            try:
                self._connection.execute(_UNLOCK, (run,))
            except psycopg.Error:
                self._connection = None  # the lock ended with it

    def keep(self) -> None:
        """Take the locks again that ended with a connection, as far as nothing else has them."""
        if self._runs:
            self._patiently(self._refreshed)

    def close(self) -> None:
        """End the connection, and the locks with it."""
        self._runs.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _refreshed(self) -> None:
        self._live().execute("SELECT 1")

    def _locked(self, run: int) -> bool:
        row = self._live().execute(_TRY, (run,)).fetchone()
        return row is not None and bool(row[0])

    def _live(self) -> "psycopg.Connection[tuple[object]]":
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
            for run in self._runs:
                self._connection.execute(_TRY, (run,))
        return self._connection
