"""Commands on a PostgreSQL server.

Invariants:
1. Every command takes the URL of a server where it takes a file.
2. A replay on a server is the recorded run again; a copy in a file has the same dump.
3. What is wrong is said in one line with a remedy, and no password.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.app.database import store_word
from evolve.store import Store
from tests.cli.test_verbs import replay
from tests.store.servers import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as started:
        yield started


@pytest.fixture
def url(server: Server, recording: Path) -> str:
    """Of a server with the recorded run."""
    found = server.new_database()
    with Store.open(recording) as source, Store.open(found, create=True) as target:
        source.copy_to(target)
    return found


def test_reading_commands_take_a_url(evolve_here, url: str) -> None:
    assert "demo" in evolve_here("list", "--store", url).stdout
    shown = evolve_here("show", "demo", "--store", url)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "def forward" in evolve_here("best", "demo", "--store", url).stdout
    assert evolve_here("report", "demo", "--store", url).stdout == "runs/demo.html\n"
    assert Path("runs/demo.html").read_text().startswith("<!doctype html>")
    assert "records" in evolve_here("db", "size", "--store", url).stdout
    assert "nothing to do" in evolve_here("db", "upgrade", "--store", url).stdout
    assert "dropped" in evolve_here("db", "prune", "demo", "--store", url).stdout


def test_a_copy_has_the_same_dump_and_a_second_one_is_refused(
    evolve_here, url: str, recording: Path
) -> None:
    assert "1 run, " in evolve_here("db", "copy", url, "copy.db").stdout
    dumps = [
        evolve_here("db", "dump", "demo", "--canonical", "--store", place).stdout
        for place in (url, "copy.db", str(recording))
    ]
    assert dumps[0]
    assert len(set(dumps)) == 1
    again = evolve_here("db", "copy", url, "copy.db")
    assert again.returncode == 2
    assert "copy.db holds runs already" in again.stderr


@pytest.mark.slow
def test_a_replay_on_a_server_is_the_recorded_run_again(evolve, url: str, tmp_path: Path) -> None:
    done = replay(evolve, tmp_path, "name=again", store_word(url))
    assert done.returncode == 0, done.stderr
    assert f"run again in {url}" in done.stdout
    assert "runs/again.html" in done.stdout
    dumps = [
        evolve("db", "dump", name, "--canonical", "--store", url).stdout
        for name in ("demo", "again")
    ]
    assert dumps[0]
    assert dumps[0] == dumps[1]
    assert evolve("resume", "again", store_word(url)).returncode == 0


WRONG = {
    ("list", "--store", "postgresql://me:s3cret@host/db"): "PGPASSWORD or ~/.pgpass",
    ("list", "--store", "postgresql://me@localhost:1/db"): "check that it runs",
    ("run", "task=softmax", "store=postgresql"): "store.url=postgresql://USER@HOST",
    ("run", "task=softmax", "store.url=runs/evolve.db"): "write postgresql://",
    ("run", "task=softmax", "store.url=postgresql://me:s3cret@host/db"): "PGPASSWORD",
    ("run", "task=softmax", "store.url=postgresql://me:s3cret@host/db?a=%2F"): "quotes",
    ("run", "task=softmax", "store.url=PostgreSQL+psycopg://me:s3cret@host/db"): "PGPASSWORD",
    ("resume", "store.url=postgresql://me:s3cret@host/db"): "PGPASSWORD",
    ("db", "copy", "missing.db", "other.db"): "no database at missing.db",
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_a_bad_location_is_one_line_with_a_remedy_and_no_password(evolve_here, words) -> None:
    done = evolve_here(*words)
    assert done.returncode == 2
    assert WRONG[words] in done.stderr
    assert done.stderr.count("\n") == 1
    assert "s3cret" not in done.stderr + done.stdout


def test_a_run_that_another_process_continues_is_refused(evolve_here, url: str) -> None:
    with Store.open(url) as holder:
        holder.claim(holder.run("demo").id)
        holder.heartbeat(holder.run("demo").id, 0.0)
        done = evolve_here("resume", "demo", "device=replay", "device.run=demo", store_word(url))
    assert done.returncode == 2
    assert "is being continued by another process" in done.stderr
