"""A database on a PostgreSQL server: its transactions, also across cut connections and restarts.

A transaction whose COMMIT was sent and not answered is looked up: each writes its number beside
the others of this process, so that the number is there if, and only if, it was committed.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
from sqlalchemy import Connection, QueuePool, create_engine
from sqlalchemy.exc import DBAPIError, InvalidRequestError

from evolve.core.errors import StoreError
from evolve.core.records import Pruned
from evolve.store import copying
from evolve.store.database import identities, lease, migrations
from evolve.store.database import schema as shared
from evolve.store.database.backend import Action, Database, P, T
from evolve.store.postgresql import address, maintenance, schema
from evolve.store.postgresql.connections import Patience, connect
from evolve.store.postgresql.explanations import explain, is_cut, is_starting_or_stopping
from evolve.store.postgresql.leases import Leases

_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
# One message to the server. Other writers are let in at the same time, or kept out ({shared}
# is empty then); the row of the lease cannot be taken over before this transaction has ended.
_WRITE = """
    BEGIN;
    SELECT pg_advisory_xact_lock{shared}(hashtext('evolve texts ' || current_schema()));
    INSERT INTO writer (token, number, seen) VALUES ('{token}', {number}, {now})
        ON CONFLICT (token) DO UPDATE SET number = {number}, seen = {now};
    SELECT 1 FROM lease WHERE owner = '{owner}' FOR SHARE
"""
_STALE_S = 7 * 24 * 3600  # a process that has written nothing for so long has ended
_END_OLD = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid = %s AND application_name = %s AND pid <> pg_backend_pid()
"""
_COMMITTED = "SELECT number FROM writer WHERE token = %s FOR UPDATE"


class PostgresDatabase(Database):
    """Read and write transactions on the database of a URL, in the first schema of its path."""

    def __init__(
        self, url: str, *, create: bool = False, read_only: bool = False, to_upgrade: bool = False
    ) -> None:
        self._url = address.checked(url)
        self.location = address.shown(url)
        self.notices = []
        self._token = secrets.token_hex(16)
        self._name = f"evolve {self._token}"
        self._owner = ""
        self._number = 0
        self._read_only = read_only
        self._writing = threading.Lock()
        self._snapshot = threading.local()
        self._patiently = Patience(self.location)
        self._leases = Leases(self._connect, self._patiently)
        self._engine = create_engine(
            "postgresql+psycopg://", creator=self._connect, poolclass=QueuePool, pool_size=10
        )
        with ExitStack() as on_failure:
            on_failure.callback(self._engine.dispose)
            self._prepare(create=create and not read_only, accept_new=create, upgrade=to_upgrade)
            on_failure.pop_all()

    def _connect(self) -> "psycopg.Connection[tuple[object]]":
        return connect(self._url, self._name, read_only=self._read_only)

    def _prepare(self, *, create: bool, accept_new: bool, upgrade: bool) -> None:
        with self._explained():
            self._require_server()
        if not upgrade:
            with self._explained():
                self._patiently(lambda: self._prepare_once(create, accept_new))

    def _require_server(self) -> None:
        """Raise at once where no server is; one that still starts, as after a crash, is awaited."""
        try:
            self._connect().close()
        except psycopg.OperationalError as error:
            if not is_starting_or_stopping(error):
                raise
            self._patiently.note_absence(say_now=True)
            self._patiently(self._connect).close()

    def _prepare_once(self, create: bool, accept_new: bool) -> None:
        with self._transaction(_READ if self._read_only else "BEGIN") as connection:
            schema.prepare(connection, self.location, create=create, accept_new=accept_new)

    def close(self) -> None:
        """End all connections, and forget the numbers of this process."""
        if self._number:
            key = {"of": self._token, "before": int(time.time()) - _STALE_S}
            with (
                suppress(DBAPIError, psycopg.Error),  # the server is away: another one clears up
                self._transaction("BEGIN") as connection,
            ):
                connection.execute(schema.FORGET, key)
        self._leases.close()
        self._engine.dispose()

    # Reading

    def read(self, query: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a query, which sees one state of the database."""
        view: Connection | None = getattr(self._snapshot, "connection", None)
        with self._explained():
            if view is not None:
                return self._read_in(view, query, *args, **kwargs)
            return self._patiently(lambda: self._read_once(query, *args, **kwargs))

    def _read_once(self, query: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._view() as connection:
            return query(connection, *args, **kwargs)

    def _read_in(
        self, view: Connection, query: Action[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Within a snapshot; one that was cut is followed by the rest of the block by another."""
        try:
            return query(view, *args, **kwargs)
        except DBAPIError as error:
            if not is_cut(error):
                raise
        self._snapshot.connection = None  # the next queries open transactions of their own
        return self._patiently(lambda: self._read_once(query, *args, **kwargs))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One view for all that this thread reads in the block, which must not write."""
        if getattr(self._snapshot, "connection", None) is not None:
            yield
            return
        with self._explained(), ExitStack() as stack:
            opened = self._patiently(lambda: stack.enter_context(self._view()))
            self._snapshot.connection = opened
            try:
                yield
            finally:
                self._snapshot.connection = None

    # Writing

    def write(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """All of an action or nothing; one that the server has taken back is repeated."""
        return self._written("_shared", lambda connection: action(connection, *args, **kwargs))

    def write_alone(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`write`, while no other process adds texts or programs."""
        return self._written("", lambda connection: action(connection, *args, **kwargs))

    def _written(self, shared: str, action: Callable[[Connection], T]) -> T:
        if getattr(self._snapshot, "connection", None) is not None:
            raise RuntimeError("a write within a snapshot")
        with self._writing, self._explained():
            return self._patiently(lambda: self._write_once(shared, action))

    def _write_once(self, shared: str, action: Callable[[Connection], T]) -> T:
        self._number += 1
        begin = _WRITE.format(
            shared=shared,
            token=self._token,
            number=self._number,
            now=int(time.time()),
            owner=self._owner,
        )
        with self._engine.connect() as connection, ExitStack() as on_failure:
            driver = _driver(connection)
            pid = driver.info.backend_pid
            on_failure.callback(_forget, connection)
            try:
                driver.execute(begin, prepare=False)
                transaction = connection.begin()
                result = action(connection)
            except (DBAPIError, psycopg.Error) as error:
                if is_cut(error):
                    self._drop(connection)
                    self._end(pid)
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not is_cut(error):
                    raise
                self._drop(connection)
                if not self._found_committed(pid):
                    raise
            on_failure.pop_all()
            return result

    def _drop(self, connection: Connection) -> None:
        """After a cut: neither this connection nor those that wait are used again."""
        connection.invalidate()
        self._engine.dispose()

    def _found_committed(self, pid: int) -> bool:
        """Whether the newest transaction was, whose answer the connection did not bring.

        Raises:
            StoreError: the server stays away; it is not repeated then.
        """
        try:
            return self._patiently(lambda: self._was_committed(pid))
        except (DBAPIError, psycopg.Error) as error:
            raise StoreError(
                f"{self.location}: the connection ended during a commit, and the server does not "
                "come back to say whether it was made; resume once it runs, which reads the "
                "stored state"
            ) from error

    def _was_committed(self, pid: int) -> bool:
        self._end(pid)
        with self._connect() as connection:
            row = connection.execute(_COMMITTED, (self._token,)).fetchone()
            return row is not None and row[0] == self._number

    def _end(self, pid: int) -> None:
        """Let the server end a transaction of this process that may still be open there."""
        with self._connect() as connection:
            connection.execute(_END_OLD, (pid, self._name))

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        with self._engine.connect() as connection, ExitStack() as on_failure:
            on_failure.callback(_forget, connection)
            try:
                _driver(connection).execute(begin)
            except psycopg.Error:
                self._drop(connection)
                raise
            with connection.begin():
                yield connection
            on_failure.pop_all()

    @contextmanager
    def _view(self) -> Iterator[Connection]:
        """A transaction that only reads, whose end cannot fail."""
        with ExitStack() as stack:
            connection = stack.enter_context(self._transaction(_READ))
            try:
                yield connection
            finally:
                with suppress(DBAPIError, InvalidRequestError):
                    connection.rollback()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, psycopg.Error) as error:
            raise explain(self.location, error) from error

    # Leases

    def claim(self, run: int, owner: str) -> None:
        """Lock the run for as long as this process is connected."""
        with self._explained():
            if not self._leases.take(run):
                self.read(lease.refuse, run)
        self._owner = owner
        self.write(lease.take, run, owner)

    def watch(self, owner: str) -> None:
        """Take the locks again that a cut connection has ended."""
        with self._explained():
            self._leases.keep()

    def unwatch(self, run: int) -> None:
        """Free the run for others."""
        self._leases.give_up(run)

    # Maintenance

    def backup(self, target: Path) -> None:
        """Copy everything to a new SQLite file."""
        copying.to_file(self, target)

    def bytes_on_disk(self) -> dict[str, int]:
        """Bytes of all tables and their indexes."""
        return self.read(maintenance.size)

    def prune(self, run: int, owner: str, keep: int | None) -> Pruned:
        """Drop samples and feedback; the server reuses the space."""
        return self.write_alone(maintenance.prune, run, owner, keep)

    def upgrade(self) -> int:
        """Bring the schema up to date, all of it or nothing."""
        with self._explained(), self._transaction("BEGIN") as connection:
            return _upgrade(connection, self.location)


def _upgrade(connection: Connection, location: str) -> int:
    before = schema.known_version(connection, location)
    if not schema.FIRST <= before <= shared.VERSION:
        migrations.refuse_others(location, before, schema.FIRST)
    migrations.migrate(connection, before)
    schema.put_version(connection)
    return before


def _forget(connection: Connection) -> None:
    if not connection.invalidated:  # else it is gone, with its cache
        identities.forget(connection)


def _driver(connection: Connection) -> "psycopg.Connection[tuple[object]]":
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver
