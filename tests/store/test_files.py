"""Invariants.

1. A file that cannot be used gives one message with its path and a remedy, and is left as it is.
2. A full disk loses the write under way and nothing else; the store goes on when there is room.
3. Where the write-ahead log does not work, a rollback journal is used and one line says so.
"""

import os
import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evolve.core.errors import StoreError, UsageError
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.store import Store
from evolve.store.database.schema import VERSION
from evolve.store.sqlite.database import choose_journal
from evolve.store.sqlite.filesystem import type_of
from tests.nobody import as_nobody
from tests.store.facts import SmallArchive, new_run, recount, replay, take_step


def pragma(path: Path, statement: str) -> object:
    with closing(sqlite3.connect(path)) as connection:
        row = connection.execute(f"PRAGMA {statement}").fetchone()
        return row[0] if row else None


def test_a_missing_database_is_said_and_not_made(path: Path) -> None:
    with pytest.raises(UsageError, match=f"no database at {path}; check the path"):
        Store.open(path)
    assert not path.exists()


def test_creating_makes_the_folder_and_opening_again_finds_the_run(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er %41?#" / "searches.db"
    with Store.open(path, create=True) as store:
        created = new_run(store)
        assert store.notices == ()
    with Store.open(path, create=True) as store:
        assert store.run() == created


def test_a_folder_is_not_a_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        Store.open(tmp_path, create=True)


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=f"cannot make the folder {tmp_path / 'file'}"):
        Store.open(tmp_path / "file" / "searches.db", create=True)


@pytest.mark.parametrize("content", [b"import torch\n" * 100, b"x" * 511, b"x"])
def test_a_file_that_is_no_database_is_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(UsageError, match=f"{path} is not a database; check the path"):
        Store.open(path, create=True)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_database_only_when_creating(path: Path) -> None:
    path.touch()
    with pytest.raises(UsageError, match="is empty"):
        Store.open(path)
    with Store.open(path, create=True) as store:
        new_run(store)


def test_a_database_of_another_program_is_left_as_it_is(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
    content = path.read_bytes()
    with pytest.raises(UsageError, match="database of another program"):
        Store.open(path, create=True)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("version", "remedy"),
    [(VERSION + 1, "pip install -U"), (5, "evolve db upgrade --store"), (0, "start a new one")],
)
def test_another_schema_is_refused_with_what_to_do(store: Store, version: int, remedy: str) -> None:
    new_run(store)
    store.close()
    pragma(store.location, f"user_version={version}")
    with pytest.raises(UsageError, match=rf"{store.location} has schema {version}.*{remedy}"):
        Store.open(store.location)


def test_a_damaged_file_is_said_to_be_damaged(store: Store) -> None:
    run = new_run(store).id
    for number in range(1, 30):
        take_step(store, run, SmallArchive(), number)
    store.close()
    data = bytearray(Path(store.location).read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    Path(store.location).write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"), Store.open(store.location) as opened:
        list(opened.steps(run))


def test_reading_only_does_not_write(store: Store) -> None:
    run = new_run(store).id
    with Store.open(store.location, read_only=True) as reader:
        assert reader.run().id == run
        with pytest.raises(StoreError, match="cannot be written"):
            reader.ask(run, "tune", ())
    with pytest.raises(UsageError, match="no database"):
        Store.open(Path(store.location).with_name("other.db"), read_only=True, create=True)


@pytest.fixture
def closed_folder(store: Store) -> Iterator[Path]:
    """A finished database in a folder that cannot be written."""
    new_run(store)
    store.close()
    folder = Path(store.location).parent
    for parent in folder.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    Path(store.location).chmod(0o444)
    folder.chmod(0o555)
    yield Path(store.location)
    folder.chmod(0o755)


def test_a_read_only_file_is_refused_before_any_work(closed_folder: Path) -> None:
    def write() -> str:
        return Store.open(closed_folder).run().name

    message = as_nobody(write)
    assert message.startswith("StoreError")
    assert str(closed_folder) in message
    assert "read-only" in message or "write to its folder" in message


def test_a_database_in_a_read_only_folder_can_be_read(closed_folder: Path) -> None:
    assert as_nobody(lambda: Store.open(closed_folder, read_only=True).run().name) == "first"


def test_a_database_cannot_be_made_in_a_read_only_folder(closed_folder: Path) -> None:
    path = closed_folder.with_name("new.db")
    message = as_nobody(lambda: Store.open(path, create=True).path.name)
    assert message.startswith("StoreError")
    assert str(path) in message


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(store: Store, run: int) -> None:
    for _ in range(500):
        text = Program(os.urandom(8192).hex())
        store.propose(store.ask(run, "seed", ()), Proposal(program=text))


def test_a_full_disk_loses_the_write_under_way_and_nothing_else(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    with Store.open(small_disk / "searches.db", create=True) as store:
        run = new_run(store).id
        for number in range(1, 6):
            take_step(store, run, SmallArchive(), number)
        with pytest.raises(StoreError, match=r"searches\.db.*the disk.*resume"):
            fill(store, run)
        assert store.progress(run) == recount(store, run)
        ballast.unlink()
        before = store.progress(run).proposals
        take_step(store, run, SmallArchive(), 6)
        assert store.progress(run).proposals == before + 1
        assert store.slots(run) == replay(store, run)
    assert pragma(store.location, "integrity_check") == "ok"


def test_a_disk_without_room_for_a_database_is_said_to_be_full(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes((3 << 20) - 8192))
    with pytest.raises(StoreError, match="the disk"):
        Store.open(small_disk / "searches.db", create=True)


def test_a_file_at_its_size_limit_is_told_from_other_errors(store: Store) -> None:
    run = new_run(store).id
    with store._database.driver() as connection:
        connection.execute("PRAGMA max_page_count=80")
    with pytest.raises(StoreError, match="the disk is full"):
        fill(store, run)
    assert store.progress(run) == recount(store, run)


def test_without_the_write_ahead_log_a_journal_is_used_and_said(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.store.sqlite.filesystem.is_shared_between_hosts", lambda _: True)
    with Store.open(path, create=True) as store:
        (notice,) = store.notices
        assert notice.startswith(f"{path}: the write-ahead log does not work")
        run = new_run(store).id
        store.claim(run)
        take_step(store, run, SmallArchive(), 1)
        reading = store.steps(run)
        next(reading)
        take_step(store, run, SmallArchive(), 2)  # a reader in between holds nobody up
    assert pragma(path, "journal_mode") == "delete"


def test_the_journal_is_what_sqlite_says_it_is(path: Path) -> None:
    # This VFS locks with files and has no shared memory, so SQLite declines the log.
    with closing(sqlite3.connect(f"file:{path}?vfs=unix-dotfile", uri=True)) as connection:
        assert choose_journal(connection, use_wal=True) == "delete"
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    with closing(sqlite3.connect(path)) as connection:
        assert choose_journal(connection, use_wal=True) == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone() == (1,)


MOUNTS = r"""
21 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
35 21 0:40 / /home rw,relatime shared:20 master:2 - nfs4 server:/home rw,vers=4.2
36 35 0:41 / /home/me/local\040disk rw - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/a.db", "ext4"),
        ("/home/me/a.db", "nfs4"),
        ("/home/me/local disk/a.db", "xfs"),
        ("/homework/a.db", "ext4"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_longest_mount(path: str, kind: str) -> None:
    assert type_of(Path(path), MOUNTS.strip()) == kind


def test_importing_the_package_does_not_import_sqlalchemy() -> None:
    check = "import sys, evolve.store; evolve.store.Ticket; sys.exit('sqlalchemy' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
