"""One SQLite file: how it is opened, its transactions, and what its errors mean to a person."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DatabaseError

from evolve.core.errors import StoreError, UsageError
from evolve.store import filesystem, schema

BUSY_TIMEOUT_S = 30.0
_CACHE_KIB = 32 * 1024
_MAGIC = b"SQLite format 3\0"


class Database:
    """Read and write transactions on one file.

    Attributes:
        path: The file.
        notices: Lines that a person should see once, e.g. that the write-ahead log is off.
    """

    def __init__(self, path: Path, *, create: bool, read_only: bool) -> None:
        self.path = path
        self.notices: list[str] = []
        self._read_only = read_only
        _check_place(path, create=create and not read_only)
        self._use_wal = not filesystem.is_shared_between_hosts(path)
        self._reader = self._engine("rwc" if create and not read_only else "rw")
        self._writer = self._reader.execution_options(begin="BEGIN IMMEDIATE")
        try:
            self._check_stamp(create=create)
        except BaseException:
            self.close()
            raise

    def _engine(self, mode: str) -> Engine:
        def connect() -> sqlite3.Connection:
            if self._read_only:
                return _connect_to_read(self.path)
            return self._configured(_connect(self.path, f"mode={mode}"))

        # Transactions are begun by the listener: the driver's own would begin too late and
        # deferred, and lose updates between processes.
        engine = create_engine("sqlite+pysqlite://", creator=connect, poolclass=QueuePool)
        event.listen(engine, "begin", _begin)
        return engine

    def _configured(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        if choose_journal(connection, use_wal=self._use_wal) != "wal" and not self.notices:
            self.notices.append(
                f"{self.path}: the write-ahead log does not work on this file system; using a "
                "rollback journal, which is slower and for one host at a time"
            )
        return connection

    def close(self) -> None:
        self._reader.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view for as long as the block lasts; keep it short."""
        with self._explained(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """All of the block or nothing; committed when it ends, one writer at a time."""
        with self._explained(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def driver(self) -> Iterator[sqlite3.Connection]:
        """The bare connection outside any transaction, for backup and vacuum."""
        with self._explained():
            pooled = self._reader.raw_connection()
            try:
                yield pooled.driver_connection  # type: ignore[misc]
            finally:
                pooled.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise _explain(self.path, error.orig, error) from error
        except sqlite3.DatabaseError as error:
            raise _explain(self.path, error, error) from error

    def _check_stamp(self, *, create: bool) -> None:
        with self.read() as connection:
            stamp = _stamp(connection)
        if stamp == (0, 0, 0) and create and not self._read_only:
            with self.write() as connection:
                if _stamp(connection) == (0, 0, 0):  # nobody else was faster
                    _create(connection)
            return
        _refuse_foreign(self.path, *stamp)
        if not self._read_only:
            with self.write():  # finds a read-only file now rather than at the first result
                pass


def choose_journal(connection: sqlite3.Connection, *, use_wal: bool) -> str:
    """Set up a connection; returns the journal mode that SQLite really took."""
    wanted = "WAL" if use_wal else "DELETE"
    (mode,) = connection.execute(f"PRAGMA journal_mode={wanted}").fetchone()
    connection.execute(f"PRAGMA synchronous={'NORMAL' if mode == 'wal' else 'FULL'}")
    return str(mode)


def _connect(path: Path, options: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?{options}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    try:
        connection = _connect(path, "mode=ro")
        connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        # In a folder that cannot be written, a file with a finished log still opens as immutable.
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = _connect(path, "immutable=1")
    return connection


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _check_place(path: Path, *, create: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give the path of a database file")
    if path.exists():
        _refuse_other_formats(path)
        return
    if not create:
        raise UsageError(f"no database at {path}; check the path, or start a run there first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {path.parent} ({error.strerror}); choose another place"
        ) from error


def _refuse_other_formats(path: Path) -> None:
    # SQLite itself takes a file shorter than its header for an empty one, and overwrites it.
    try:
        with path.open("rb") as file:
            start = file.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}); change its permissions"
        ) from error
    if start and start != _MAGIC:
        raise UsageError(f"{path} is not a database; check the path")


def _stamp(connection: Connection) -> tuple[int, int, int]:
    """Application id, schema number and number of schema objects; all 0 in a new file."""
    return tuple(
        connection.exec_driver_sql(query).scalar_one()
        for query in (
            "PRAGMA application_id",
            "PRAGMA user_version",
            "SELECT count(*) FROM sqlite_master",
        )
    )


def _create(connection: Connection) -> None:
    schema.metadata.create_all(connection)
    connection.exec_driver_sql("ANALYZE")  # makes the table, and finds nothing to put into it
    for place, numbers in schema.STATISTICS.items():
        connection.exec_driver_sql("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", (*place, numbers))
    connection.exec_driver_sql("ANALYZE sqlite_master")  # makes this connection read them
    connection.exec_driver_sql(f"PRAGMA application_id={schema.APPLICATION_ID}")
    connection.exec_driver_sql(f"PRAGMA user_version={schema.VERSION}")


def _refuse_foreign(path: Path, application: int, version: int, objects: int) -> None:
    if not objects:
        raise UsageError(f"{path} is empty; check the path, or start a run there first")
    if application != schema.APPLICATION_ID:
        raise UsageError(f"{path} is a database of another program; choose another path")
    if version > schema.VERSION:
        raise UsageError(
            f"{path} has schema {version}, this version of evolve-kernels reads schema "
            f"{schema.VERSION}; upgrade with `pip install -U evolve-kernels`"
        )
    if version < schema.VERSION:
        raise UsageError(
            f"{path} has schema {version} of an earlier development version, which schema "
            f"{schema.VERSION} cannot take over; keep the file and start a new database"
        )


def _explain(path: Path, cause: BaseException | None, error: Exception) -> Exception:
    """The error to raise instead; `error` itself where it is a mistake of ours."""
    code = getattr(cause, "sqlite_errorname", "")
    for start, message in _EXPLANATIONS.items():
        if code.startswith(start):
            return StoreError(" ".join(message.split()).format(path=path, cause=cause))
    return error


_EXPLANATIONS = {
    "SQLITE_FULL": """
        {path}: the disk is full; free some space and resume, everything stored so far is kept""",
    "SQLITE_READONLY": """
        {path} cannot be written, the file or its folder is read-only;
        change its permissions, or copy it to a place that you can write to""",
    "SQLITE_CANTOPEN": """
        {path} cannot be opened ({cause}); check that you may read it and write to its folder""",
    "SQLITE_CORRUPT": """
        {path} is damaged ({cause});
        go back to a backup, or save what can be read with `sqlite3 FILE .recover`""",
    "SQLITE_BUSY": """
        {path} is locked by another process for more than 30 s; wait for it or stop it""",
    "SQLITE_IOERR": """
        {path} cannot be read or written ({cause});
        check the disk and resume, everything stored so far is kept""",
}
