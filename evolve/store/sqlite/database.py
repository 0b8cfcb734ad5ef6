"""One SQLite file: how it is opened, and its transactions."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, QueuePool, create_engine
from sqlalchemy.exc import DatabaseError

from evolve.core.errors import EvolveError, StoreError
from evolve.core.records import Pruned
from evolve.store.database import identities, lease
from evolve.store.database.backend import Action, Database, P, T
from evolve.store.database.migrations import migrate
from evolve.store.sqlite import filesystem, maintenance, schema_check
from evolve.store.sqlite.explanations import explain
from evolve.store.sqlite.other_hosts import refuse_other_hosts
from evolve.store.sqlite.watch import (
    Overwritten,
    Page,
    TakenAway,
    Watch,
    closed,
    opened,
    rescue_places,
)

BUSY_TIMEOUT_S = 30.0
_CACHE_KIB = 32 * 1024
_PAGE_OF_LEASE = """
    SELECT rootpage, page_size FROM sqlite_master, pragma_page_size
    WHERE type = 'table' AND name = 'lease' AND EXISTS (SELECT 1 FROM lease WHERE owner = ?)
"""
_OVERWRITTEN = """
    {path} was overwritten or cut off while a search wrote to it, and its last state is not in the
    file any more; find out what else writes there, go back to a backup, and resume
"""
_NO_LOG = ("SQLITE_CANTOPEN", "SQLITE_READONLY")


class SqliteDatabase(Database):
    """Read and write transactions on one file (`path`)."""

    def __init__(
        self, path: Path, *, create: bool = False, read_only: bool = False, to_upgrade: bool = False
    ) -> None:
        self.path = path
        self.location = str(path)
        self.notices: list[str] = []
        self._create = create and not read_only
        self._accept_new = create
        self._read_only = read_only
        self._to_upgrade = to_upgrade
        schema_check.check_place(path, create=self._create)
        self._use_wal = not filesystem.is_shared_between_hosts(path)
        self._snapshot = threading.local()
        self._engine = create_engine(
            "sqlite+pysqlite://", creator=self._connect, poolclass=QueuePool
        )
        self._watch: Watch | None = None
        self._lost = ""  # what has become of the file under our hands
        with ExitStack() as on_failure:
            on_failure.callback(self._engine.dispose)
            self._prepare()
            self._identity = opened(path)
            on_failure.pop_all()

    def _connect(self) -> sqlite3.Connection:
        if self._read_only:
            connection = _connect_to_read(self.path)
        else:
            connection = _connect(self.path, "mode=rwc" if self._create else "mode=rw")
        with ExitStack() as on_failure:
            on_failure.callback(connection.close)
            schema_check.refuse_foreign(
                self.path,
                connection,
                accept_new=self._accept_new,
                accept_old=self._to_upgrade,
            )
            # Tables are made anew by an upgrade, which others refer to.
            connection.execute(f"PRAGMA foreign_keys={'OFF' if self._to_upgrade else 'ON'}")
            on_failure.pop_all()
        return connection if self._read_only else self._configured(connection)

    def _prepare(self) -> None:
        if self._read_only:
            self.read(lambda _: None)
        else:
            self.write(self._begin)  # finds a read-only file now, not at the first result

    def _begin(self, connection: Connection) -> None:
        if self._create and not schema_check.version(connection):
            schema_check.create(connection)
        refuse_other_hosts(connection)

    def _configured(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        if choose_journal(connection, use_wal=self._use_wal) != "wal" and not self.notices:
            self.notices.append(
                f"{self.path}: the write-ahead log does not work on this file system; using a "
                "rollback journal, which is slower and for one host at a time"
            )
        return connection

    def close(self) -> None:
        self._engine.dispose()
        self._watch = None
        closed(self._identity)
        self._identity = None

    def watch(self, owner: str) -> None:
        """Look at the file before every write from now on: other programs can reach it too.

        Args:
            owner: of a lease that is held; the file holds it until `unwatch`.
        """
        if self._watch is not None or self._lost:
            return
        with self.driver() as connection:
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._watch = Watch(self.path, owner.encode(), partial(self._page_of_lease, owner))

    def unwatch(self, run: int) -> None:
        """No lease is held any more."""
        self._watch = None

    def claim(self, run: int, owner: str) -> None:
        """Take the lease; one whose heartbeat or process has ended is taken over."""
        self.write(_claim, run, owner)

    def _page_of_lease(self, owner: str) -> Page | None:
        with self.driver() as connection:
            row = connection.execute(_PAGE_OF_LEASE, (owner,)).fetchone()
        return row and Page(*row)

    def _require_file(self) -> None:
        """Raise StoreError if the file was taken away or overwritten since `watch`."""
        watched, self._watch = self._watch, None  # what is asked meanwhile does not ask again
        if watched is not None:
            try:
                watched.check()
            except TakenAway:
                self._lost = self._rescued()
            except Overwritten:
                self._lost = " ".join(_OVERWRITTEN.format(path=self.path).split())
        if self._lost:
            raise StoreError(self._lost)
        self._watch = watched

    def _rescued(self) -> str:
        """Copy what SQLite still has open; says where it is."""
        gone = f"{self.path}, or its log, was deleted, moved or replaced while a search wrote to it"
        for target in rescue_places(self.path):
            with suppress(EvolveError, OSError):
                maintenance.backup(self, target)
                return (
                    f"{gone}; its last state is in {target}: go on there with "
                    f"`evolve resume RUN store.path={target}`"
                )
        return f"{gone}, and its last state could be copied nowhere; go back to a backup"

    def read(self, query: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a query, which sees one state of the database."""
        shared: Connection | None = getattr(self._snapshot, "connection", None)
        if shared is not None:
            return query(shared, *args, **kwargs)
        with self._transaction("BEGIN") as connection:
            return query(connection, *args, **kwargs)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """One view for all that this thread reads in the block, which must not write.

        Without the write-ahead log a writer would wait for the reader, that is for itself.
        """
        if getattr(self._snapshot, "connection", None) is not None:
            yield
            return
        with self._transaction("BEGIN") as connection:
            self._snapshot.connection = connection
            try:
                yield
            finally:
                self._snapshot.connection = None

    def write(self, action: Action[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """All of an action or nothing, one writer at a time."""
        if getattr(self._snapshot, "connection", None) is not None:
            raise RuntimeError("a write within a snapshot")
        self._require_file()
        with self._transaction("BEGIN IMMEDIATE") as connection:
            return action(connection, *args, **kwargs)

    write_alone = write

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Connection]:
        """Begun by hand: the driver would begin too late, and lose updates between processes.

        Nor by a listener: with one, SQLAlchemy asks about listeners at every statement.
        """
        with self._explained(), self._engine.connect() as connection, ExitStack() as on_failure:
            on_failure.callback(identities.forget, connection)
            _driver(connection).execute(begin)
            with connection.begin():
                yield connection
            on_failure.pop_all()

    @contextmanager
    def driver(self) -> Iterator[sqlite3.Connection]:
        """The bare connection outside any transaction, for backup and vacuum."""
        with self._explained():
            pooled = self._engine.raw_connection()
            try:
                yield pooled.driver_connection  # type: ignore[misc]
            finally:
                pooled.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            self._require_file()
            raise explain(self.path, error.orig, error) from error
        except sqlite3.DatabaseError as error:
            self._require_file()
            raise explain(self.path, error, error) from error

    def backup(self, target: Path) -> None:
        """Copy the database as it stands, also while a search writes to it."""
        maintenance.backup(self, target)

    def bytes_on_disk(self) -> dict[str, int]:
        """Bytes of the file, and of its write-ahead log."""
        return self.read(maintenance.size) | {"log": maintenance.log_size(self.path)}

    def prune(self, run: int, owner: str, keep: int | None) -> Pruned:
        """Drop samples and feedback beyond `keep`, and make the file smaller."""
        return maintenance.prune(self, run, owner, keep)

    def upgrade(self) -> int:
        """Bring the schema up to date, all of it or nothing."""
        return self.write(_upgrade)


def _upgrade(connection: Connection) -> int:
    before = schema_check.version(connection)
    migrate(connection, before)
    schema_check.put_version(connection)
    if connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise StoreError("the upgrade would lose rows; nothing is changed, please report this")
    return before


def _claim(connection: Connection, run: int, owner: str) -> None:
    lease.refuse_if_held(connection, run, owner)
    refuse_other_hosts(connection)
    lease.take(connection, run, owner)


def choose_journal(connection: sqlite3.Connection, *, use_wal: bool) -> str:
    """Set up a connection; returns the journal mode that SQLite really took."""
    switch = f"PRAGMA journal_mode={'WAL' if use_wal else 'DELETE'}"
    (mode,) = _patiently(connection, switch).fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
    return str(mode)


def _patiently(connection: sqlite3.Connection, statement: str) -> sqlite3.Cursor:
    """Execute what SQLite refuses at once, timeout or not, if another process does the same."""
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return connection.execute(statement)
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorname.startswith("SQLITE_BUSY")
            if not is_busy or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")  # the first that reads the file
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    try:
        return _connect(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # In a folder that cannot be written, a file whose log is finished opens as immutable.
        has_log = path.with_name(path.name + "-wal").exists()
        if has_log or not error.sqlite_errorname.startswith(_NO_LOG):
            raise
    return _connect(path, "immutable=1")


def _driver(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
