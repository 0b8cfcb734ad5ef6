"""Invariants.

1. A database of each stored older schema is brought up to date with nothing lost, and goes on.
2. The tables of an upgraded database are those of a new one; without a new number they stay.
3. A step that fails leaves everything as it was; nothing is upgraded under a live search.

`schema_N.sql` holds a small database as version N made it, `schema_N.jsonl` its dump then;
`postgresql_N.sql` is the same database on a server.
"""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, ModelReply
from evolve.store import Store, TicketState
from evolve.store.database import migrations, schema
from evolve.store.postgresql.schema import FIRST as first_on_a_server
from tests.store.facts import SmallArchive, new_run, recount, replay, take_step
from tests.store.servers import Server

STORED = Path(__file__).with_name("databases")
VERSIONS = sorted(int(path.stem.partition("_")[2]) for path in STORED.glob("schema_*.sql"))


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


SERVERS = sorted(int(path.stem.partition("_")[2]) for path in STORED.glob("postgresql_*.sql"))
_COLUMNS = """
    SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
    FROM information_schema.columns WHERE table_schema = current_schema()
"""
_INDEXES = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()"
_TRIGGERS = """
    SELECT trigger_name, event_manipulation FROM information_schema.triggers
    WHERE trigger_schema = current_schema()
"""


@pytest.fixture
def old(version: int, path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((STORED / f"schema_{version}.sql").read_text())
    return path


def tables(path: Path) -> set[tuple[str, ...]]:
    """Columns, constraints and indexes, however their statements are laid out."""
    with closing(sqlite3.connect(path)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        found = set()
        for name in names:
            if not name.startswith("sqlite_"):
                for what in ("table_info", "foreign_key_list", "index_list", "index_info"):
                    for row in connection.execute(f"PRAGMA {what}({name})"):
                        found.add((name, what, *map(str, row[1:])))
        return found


def test_the_stored_databases_reach_from_the_oldest_to_the_current_schema() -> None:
    assert list(range(migrations.OLDEST, schema.VERSION + 1)) == VERSIONS


def test_an_older_database_is_refused_with_the_command_that_upgrades_it(
    old: Path, version: int
) -> None:
    if version == schema.VERSION:
        Store.open(old).close()
        return
    content = old.read_bytes()
    with pytest.raises(UsageError, match=f"schema {version}.*`evolve db upgrade --store {old}`"):
        Store.open(old)
    assert old.read_bytes() == content


def test_an_upgraded_database_has_lost_nothing(old: Path, version: int) -> None:
    check_nothing_is_lost(str(old), version)


def check_nothing_is_lost(location: str, version: int) -> None:
    said = Store.upgrade(location)
    assert (f"had schema {version}" in said) or (version == schema.VERSION)
    with Store.open(location) as store:
        run = store.run().id
        dumped = [json.loads(line) for line in store.dump(run)]
        stored = [json.loads(line) for line in (STORED / f"schema_{version}.jsonl").open()]
        assert len(dumped) == len(stored)
        for after, before in zip(dumped, stored, strict=True):
            assert before.items() <= after.items()
        assert store.slots(run) == replay(store, run)
        assert recount(store, run).best == store.progress(run).best


@pytest.mark.sample(3)
def test_an_upgraded_database_goes_on(old: Path) -> None:
    Store.upgrade(old)
    with Store.open(old) as store:
        run = store.run().id
        store.claim(run)
        (waiting,) = store.open_tickets(run)[1:]
        (call,) = store.pending_calls(run)
        reply = ModelReply(status=CallStatus.COMPLETED, text="an answer")
        assert store.end_call(call, reply).state is TicketState.REPLIED
        assert waiting.exchanges == ()
        take_step(store, run, SmallArchive(), 30)


def test_an_upgraded_database_has_the_tables_of_a_new_one(old: Path, tmp_path: Path) -> None:
    Store.upgrade(old)
    new = tmp_path / "new.db"
    Store.open(new, create=True).close()
    assert tables(old) == tables(new)


def test_the_stored_servers_reach_from_the_oldest_to_the_one_before_this() -> None:
    assert list(range(first_on_a_server, schema.VERSION)) == SERVERS


@pytest.mark.sample(1)
@pytest.mark.parametrize("version", SERVERS)
def test_a_server_of_an_older_schema_is_brought_up_to_date(version: int, server: Server) -> None:
    old, new = server.new_database(), server.new_database()
    server.execute((STORED / f"postgresql_{version}.sql").read_text(), old)
    with pytest.raises(UsageError, match=f"schema {version}.*`evolve db upgrade"):
        Store.open(old)
    check_nothing_is_lost(old, version)
    Store.open(new, create=True).close()
    for query in (_COLUMNS, _INDEXES, _TRIGGERS):
        found = [in_schema(server.execute(query, url)) for url in (old, new)]
        assert found[0] == found[1] != []


def in_schema(rows: list[tuple]) -> list[tuple]:
    """Rows in one order, without the schema in names of sequences."""
    return sorted(tuple(re.sub(r"searches_\d+\.", "", str(each)) for each in row) for row in rows)


def test_upgrading_again_has_nothing_to_do(old: Path) -> None:
    Store.upgrade(old)
    assert "nothing to do" in Store.upgrade(old)


def next_schema(monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    def step(connection: object) -> None:
        for statement in statements:
            connection.exec_driver_sql(statement)  # type: ignore[attr-defined]

    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    monkeypatch.setattr(migrations, "STEPS", {**migrations.STEPS, schema.VERSION: step})


@pytest.mark.parametrize("location", ["sqlite", "postgresql"], indirect=True)
def test_a_step_to_the_next_schema_is_taken_whole_or_not_at_all(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(location, create=True) as store:
        run = new_run(store).id
        take_step(store, run, SmallArchive(), 1)
        before = list(store.dump(run))
    added = "ALTER TABLE run ADD COLUMN later INTEGER NOT NULL DEFAULT 3"
    with monkeypatch.context() as patched:
        next_schema(patched, added, "no statement at all")
        with pytest.raises(Exception, match="syntax error"):
            Store.upgrade(location)
    with Store.open(location) as store:  # the number has stayed
        assert list(store.dump(run)) == before
    next_schema(monkeypatch, added)
    with pytest.raises(UsageError, match=re.escape(f"evolve db upgrade --store {location}")):
        Store.open(location)
    now = schema.VERSION
    assert f"had schema {now - 1} and has {now} now" in Store.upgrade(location)
    with Store.open(location) as store:
        assert list(store.dump(run)) == before


@pytest.mark.parametrize("location", ["sqlite", "postgresql"], indirect=True)
def test_nothing_is_upgraded_under_a_live_search(
    location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(location, create=True) as store:
        store.claim(new_run(store).id)
        next_schema(monkeypatch, "ALTER TABLE run ADD COLUMN later INTEGER")
        with pytest.raises(UsageError, match="'first' is being continued"):
            Store.upgrade(location)
