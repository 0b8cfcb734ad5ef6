"""A database that something else takes away, or writes to, while a search goes on in it.

Invariants:
1. The search notices within 10 s, ends with status 2 or 75, and pays for no more calls.
2. It says where its last state is; where SQLite still has it, it is a database to go on with.
3. What other commands do to a database, and what is done to other files, ends no search.
4. A process has a file open as long as it has a database on it, and no longer.
"""

import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from evolve.core.errors import StoreError
from evolve.store import Store
from evolve.store.sqlite import watch
from evolve.testing.synthetic import synthetic_task
from tests import forked

NOTICED_S = 10.0
CONFIG = {"baseline": "eager"}


@contextmanager
def session(database: Path, so_far: int = 3) -> Iterator[forked.Forked]:
    """A search of the run `demo` that has evaluated more programs than so far, two a second."""
    words = ("tests.cli.session", str(database), "1")
    process = forked.start(*words, cwd=database.parent.parent)
    try:
        deadline = time.monotonic() + 60
        while evaluations(database) <= so_far:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.communicate()


def evaluations(database: Path) -> int:
    if not database.exists():
        return 0
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute(
                "SELECT coalesce(sum(evaluations + screens), 0) FROM run"
            ).fetchone()[0]
        except sqlite3.OperationalError:  # its tables are being made
            return 0


def another(folder: Path) -> Path:
    """A database of this project with a run `demo` that has done nothing."""
    path = folder / "another.db"
    with Store.open(path, create=True) as store:
        store.create_run(name="demo", task=synthetic_task(), config=CONFIG, seed=1)
    return path


def delete(database: Path) -> None:
    database.unlink()


def delete_the_folder(database: Path) -> None:
    shutil.rmtree(database.parent)


def move_the_folder(database: Path) -> None:
    database.parent.rename(database.parent.with_name("moved"))


def replace(database: Path) -> None:
    another(database.parent).replace(database)


def delete_the_log(database: Path) -> None:
    database.with_name(database.name + "-wal").unlink()


def overwrite(database: Path) -> None:
    shutil.copyfile(another(database.parent), database)


def overwrite_with_noise(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(os.urandom(database.stat().st_size))


def go_back_to_a_backup(database: Path) -> None:
    shutil.copyfile(database.with_name("backup.db"), database)


def truncate(database: Path) -> None:
    os.truncate(database, 0)


def cut_in_half(database: Path) -> None:
    os.truncate(database, database.stat().st_size // 2)


def end(process: forked.Forked, database: Path) -> str:
    """What a search says that has to notice by itself; checks the first invariant."""
    began = time.monotonic()
    _, said = process.communicate(timeout=60)
    took = time.monotonic() - began
    print(f"noticed and ended within {took:.1f} s")
    assert took < NOTICED_S
    assert process.returncode in (2, 75), said
    assert str(database) in said
    assert "Traceback" not in said
    return said


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "take_away", [delete, delete_the_folder, move_the_folder, replace, delete_the_log]
)
def test_what_was_taken_away_is_copied_and_goes_on_from_there(
    tmp_path: Path, take_away: Callable[[Path], None]
):
    database = tmp_path / "runs" / "evolve.db"
    with session(database) as process:
        before = evaluations(database)
        take_away(database)
        said = end(process, database)
    found = re.search(r"its last state is in (\S+\.db)", said)
    assert found, said
    rescued = Path(found[1])
    assert evaluations(rescued) >= before
    with session(rescued, before + 1) as again:
        again.send_signal(signal.SIGINT)
        assert again.wait(30) == 75
    if rescued.parent != tmp_path:  # of this test or not
        for path in rescued.parent.glob(f"{rescued.name}*"):
            path.unlink()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "overwritten_by",
    [overwrite, overwrite_with_noise, go_back_to_a_backup, truncate, cut_in_half],
)
def test_what_was_overwritten_is_said_to_be_lost(
    tmp_path: Path, overwritten_by: Callable[[Path], None]
):
    database = tmp_path / "runs" / "evolve.db"
    database.parent.mkdir()
    with Store.open(database, create=True) as store:
        store.create_run(name="other", task=synthetic_task(), config=CONFIG, seed=1)
    shutil.copyfile(database, database.with_name("backup.db"))
    with session(database) as process:
        overwritten_by(database)
        said = end(process, database)
    assert "its last state is not in the file any more" in said
    assert "go back to a backup" in said


@pytest.mark.parametrize(
    "overwritten_by",
    [overwrite, overwrite_with_noise, go_back_to_a_backup, truncate, cut_in_half],
)
def test_nothing_is_written_to_what_was_overwritten(
    tmp_path: Path, overwritten_by: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "RECHECKED_S", 0.2)
    database = tmp_path / "evolve.db"
    with Store.open(database, create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=CONFIG, seed=1).id
    shutil.copyfile(database, database.with_name("backup.db"))
    with Store.open(database) as store:
        store.claim(run)
        store.heartbeat(run, 0.0)
        store.heartbeat(run, 1.0)  # the first begins to watch the file
        overwritten_by(database)
        held = database.read_bytes()
        with pytest.raises(StoreError, match="its last state is not in the file any more"):
            store.release(run, "interrupted", "")
        assert database.read_bytes() == held


@pytest.mark.parametrize("page_bytes", [4096, 65_536])
def test_a_file_that_shrinks_by_a_vacuum_is_whole(
    tmp_path: Path, page_bytes: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(watch, "RECHECKED_S", 0.2)
    database = tmp_path / "evolve.db"
    with Store.open(database, create=True) as store:
        run = store.create_run(name="demo", task=synthetic_task(), config=CONFIG, seed=1).id
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute(f"PRAGMA page_size = {page_bytes}")
        other.execute("VACUUM")
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE other (filling BLOB)")
        other.execute("INSERT INTO other VALUES (randomblob(2000000))")
    with Store.open(database) as store:
        store.claim(run)
        store.heartbeat(run, 0.0)
        store.heartbeat(run, 1.0)
        before = database.stat().st_size
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("DROP TABLE other")
            other.execute("VACUUM")
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert database.stat().st_size < before
        store.heartbeat(run, 2.0)


def descriptors_of(database: Path) -> int:
    """How many this process has of the database, of which some may have no name any more."""
    names = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return sum(name.startswith(str(database)) for name in names)


def beat(store: Store, name: str) -> int:
    """A run that the store watches the file for."""
    run = store.create_run(name=name, task=synthetic_task(), config=CONFIG, seed=1).id
    store.claim(run)
    store.heartbeat(run, 0.0)
    store.heartbeat(run, 1.0)  # the first begins to watch the file
    return run


def test_a_watched_file_is_closed_with_the_last_database_of_the_process_on_it(tmp_path: Path):
    """Not earlier: a process that closes a file loses all of its locks on it."""
    database = tmp_path / "evolve.db"
    for number in range(2):  # once more after all have been closed
        with Store.open(database, create=True) as first:
            run = beat(first, f"first {number}")
            with Store.open(database) as second:
                beat(second, f"second {number}")
            first.heartbeat(run, 2.0)  # it still reads the file
        assert not descriptors_of(database)


@pytest.mark.slow
def test_pruning_and_backups_of_other_runs_end_no_search(tmp_path: Path):
    database = tmp_path / "runs" / "evolve.db"
    with session(database) as process, Store.open(database) as store:
        run = store.create_run(name="other", task=synthetic_task(), config=CONFIG, seed=1)
        for number in range(3):
            store.prune(run.id)
            store.backup(tmp_path / f"{number}.db")
            before = evaluations(database)
            time.sleep(1.5)
            assert evaluations(database) > before
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 75, err
    assert "stopped by SIGINT" in out
