"""Invariants of the store on a server.

1. Connections that are cut, and a server that is killed and comes back, lose nothing and repeat
   nothing, also in the middle of a commit.
2. Sixteen searches that write the same programs at once lose nothing.
3. A run is continued by one process; one that is killed frees it at once.
4. A server is waited for only while it starts or stops, and a line says so.
5. A search that waits for its server says so once, and once that the server is back, whatever it
   was about to do; one that only lost a connection says nothing.
6. What is wrong with the server or the URL is said in one line with a remedy, and no password.
"""

import multiprocessing
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from evolve.core.errors import StoreError, UsageError
from evolve.core.protocols import Proposal
from evolve.store import Store
from evolve.store.database.schema import VERSION
from evolve.store.postgresql import connections
from tests.store.cutting import CuttingProxy
from tests.store.facts import (
    SmallArchive,
    evaluation,
    new_run,
    program,
    recount,
    replay,
    take_step,
)
from tests.store.servers import RefusingServer, Server, running_server
from tests.store.test_maintenance import search
from tests.worker.serving import alive, family_of

FORK = multiprocessing.get_context("fork")
SEARCHES = 16
STEPS = 12


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that a test may kill."""
    with running_server() as server:
        yield server


@pytest.fixture
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuttingProxy]:
    opened = CuttingProxy(tmp_path_factory.mktemp("p"), server.folder)
    yield opened
    opened.close()


def checked(store: Store, run: int, steps: int) -> None:
    """Every step is there once, and counters and slots follow from the facts."""
    assert [step.sequence for step in store.steps(run)] == list(range(steps))
    assert store.progress(run) == recount(store, run)
    assert store.slots(run) == replay(store, run)
    assert store.open_tickets(run) == []


def search_for(url: str, name: str, steps: int, results: Connection) -> None:
    """A search in a process of its own, which writes the same programs as others do."""
    with Store.open(url) as store:
        run = new_run(store, name).id
        store.claim(run)
        archive, waits = SmallArchive(), [0.0]
        for number in range(1, steps + 1):
            began = time.monotonic()
            parents = (program(number - 1).digest,) if number > 1 else ()
            take_step(store, run, archive, number, parents=parents)
            store.heartbeat(run, 0.0)
            waits.append(time.monotonic() - began)
        store.release(run, "finished", "as many as asked for")
    results.send(max(waits))


def searches_at_once(
    url: str, count: int
) -> tuple[list[multiprocessing.Process], list[Connection]]:
    pipes = [FORK.Pipe() for _ in range(count)]
    processes = [
        FORK.Process(target=search_for, args=(url, f"run-{number}", STEPS, theirs))
        for number, (_, theirs) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    return processes, [ours for ours, _ in pipes]


def ended(processes: list[multiprocessing.Process], results: list[Connection]) -> None:
    for process, result in zip(processes, results, strict=True):
        process.join(100)
        assert process.exitcode == 0
        assert result.poll()


@pytest.mark.slow
def test_sixteen_searches_that_write_at_once_lose_nothing(url: str) -> None:
    Store.open(url, create=True).close()
    ended(*searches_at_once(url, SEARCHES))
    with Store.open(url, read_only=True) as store:
        assert len(store.runs()) == SEARCHES
        for run in store.runs():
            checked(store, run.id, STEPS)
        dumps = {tuple(store.dump(run.id, canonical=True)) for run in store.runs()}
        assert len(dumps) == 1


@pytest.mark.slow
def test_a_server_that_is_killed_under_searches_loses_nothing_and_they_go_on(
    own_server: Server,
) -> None:
    url = own_server.new_database()
    Store.open(url, create=True).close()
    processes, results = searches_at_once(url, 4)
    for _ in range(3):
        time.sleep(0.4)
        own_server.kill()
        own_server.start()
    ended(processes, results)
    with Store.open(url, read_only=True) as store:
        for run in store.runs():
            checked(store, run.id, STEPS)


def test_connections_that_are_cut_again_and_again_lose_nothing(server: Server, url: str) -> None:
    Store.open(url, create=True).close()
    processes, results = searches_at_once(url, 2)
    deadline = time.monotonic() + 60
    with Store.open(url, read_only=True) as store:
        while sum(store.next_sequence(run.id) for run in store.runs()) < 2:
            assert time.monotonic() < deadline
    cut = 0
    while any(process.is_alive() for process in processes):
        cut += server.cut()
        time.sleep(0.1)
    ended(processes, results)
    assert cut
    with Store.open(url, read_only=True) as store:
        for run in store.runs():
            checked(store, run.id, STEPS)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_commit_whose_answer_never_came_is_looked_up_and_not_repeated(
    proxy: CuttingProxy, url: str, when: str
) -> None:
    with Store.open(proxy.url(url), create=True) as store:
        run = new_run(store).id
        store.claim(run)
        archive = SmallArchive()
        for number in range(1, 4):
            take_step(store, run, archive, number)
        proxy.cut(when)
        ticket = store.ask(run, "seed", ())
        assert proxy.cuts == 1
        assert ticket.sequence == 3
        assert store.next_sequence(run) == 4
        proxy.cut(when)
        ticket = store.propose(ticket, Proposal(program=program(9)))
        proxy.cut(when)
        assert store.start_evaluation(ticket) == 1
        proxy.cut(when)
        store.heartbeat(run, 2.0)
        assert proxy.cuts == 4
        assert store.progress(run).wall_time_s == 2.0
        assert store.progress(run).proposals == 4
        assert store.ticket(run, 3).attempts == 1


def killed_unflushed(server: Server) -> None:
    """Kill it so that it loses what no commit has waited for, as a power cut does."""
    os.kill(server.pid, signal.SIGSTOP)  # it starts none anew
    children = family_of(server.pid)
    for pid in children - {server.pid}:
        os.kill(pid, signal.SIGKILL)
    server.kill()
    while alive(children):
        time.sleep(0.01)
    server.start()


AWAY = r"{}: the server does not answer since \d\d:\d\d:\d\d; the work goes on when it answers .*"
BACK = r"{}: the server answers again after [1-9] s"


def test_a_search_that_waits_for_its_server_says_so_once_and_once_that_it_is_back(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    url = own_server.new_database()
    with Store.open(url, create=True) as store, closing(Store.open(url)) as reader:
        run = new_run(store).id
        store.claim(run)
        for work in (
            lambda: store.ask(run, "seed", ()),
            lambda: store.heartbeat(run, 1.0),
            lambda: reader.progress(run),
        ):
            caplog.clear()
            own_server.kill()
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            time.sleep(2.5)
            away = [record.getMessage() for record in caplog.records]
            own_server.start()
            for thread in threads:
                thread.join(30)
            said = [record.getMessage() for record in caplog.records]
            assert (len(away), len(said)) == (1, 2), said
            assert re.fullmatch(AWAY.format(re.escape(store.location)), said[0])
            assert re.fullmatch(BACK.format(re.escape(store.location)), said[1])
        assert store.next_sequence(run) == 2


def test_a_cut_connection_alone_is_not_mentioned(
    server: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        for _ in range(5):
            server.cut()
            store.ask(run, "seed", ())
            time.sleep(0.3)
    assert caplog.records == []


def stop_writing_ahead(server: Server) -> None:
    """From now on only commits that are waited for reach the disk."""
    query = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'"
    os.kill(server.execute(query)[0][0], signal.SIGSTOP)


def test_a_verdict_is_on_the_disk_before_anything_is_done_with_it(own_server: Server) -> None:
    url = own_server.new_database()
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        store.claim(run)
        ticket = store.propose(store.ask(run, "seed", ()), Proposal(program=program(1)))
        stop_writing_ahead(own_server)
        store.start_evaluation(ticket)
        judged = store.evaluated(ticket, evaluation(1.5))
        killed_unflushed(own_server)
        with Store.open(url, read_only=True) as other:
            assert other.ticket(run, 0).attempts == 1
            assert other.evaluation(run, 0) == judged.evaluation


def test_a_view_that_is_cut_goes_on(server: Server, url: str) -> None:
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        take_step(store, run, SmallArchive(), 1)
        with store.snapshot():
            before = store.progress(run)
            server.cut()
            assert store.progress(run) == before
            assert store.source(program(1).digest) == program(1).source
        assert store.ask(run, "seed", ()).sequence == 1


def hold(url: str, run: int, ready: Connection) -> None:
    store = Store.open(url)
    store.claim(run)
    store.heartbeat(run, 0.0)
    ready.send(True)
    time.sleep(100)


def test_a_run_is_continued_by_one_process_and_free_as_soon_as_that_is_killed(url: str) -> None:
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        ours, theirs = FORK.Pipe()
        holder = FORK.Process(target=hold, args=(url, run, theirs))
        holder.start()
        assert ours.poll(60)
        with pytest.raises(UsageError, match=f"'first' is being continued.*pid {holder.pid}"):
            store.claim(run)
        with pytest.raises(StoreError, match="being continued by another process"):
            store.ask(run, "seed", ())
        with pytest.raises(UsageError, match="being continued"):
            store.prune(run)
        holder.kill()
        holder.join()
        deadline = time.monotonic() + 20
        while True:
            try:
                store.claim(run)
                break
            except UsageError:  # the server has not noticed yet
                assert time.monotonic() < deadline
                time.sleep(0.05)
        assert store.ask(run, "seed", ()).sequence == 0


def test_a_process_whose_connection_was_cut_is_fenced_off_by_its_successor(
    server: Server, url: str
) -> None:
    with Store.open(url, create=True) as first, Store.open(url) as second:
        run = new_run(first).id
        first.claim(run)
        first.heartbeat(run, 0.0)
        server.cut()
        second.claim(run)
        with pytest.raises(StoreError, match="being continued by another process"):
            first.ask(run, "seed", ())
        with pytest.raises(StoreError, match="not held here"):
            first.heartbeat(run, 1.0)
        assert second.ask(run, "seed", ()).sequence == 0


@pytest.mark.slow  # pruning is in test_maintenance, on files
def test_pruning_beside_searches_that_use_the_same_texts_breaks_nothing(url: str) -> None:
    with Store.open(url, create=True) as store:
        old = new_run(store, "old").id
        search(store, old, 30)
        processes, results = searches_at_once(url, 3)
        while any(process.is_alive() for process in processes):
            store.prune(old)
            time.sleep(0.05)
        ended(processes, results)
        for name in ("run-0", "run-1", "run-2"):
            checked(store, store.run(name).id, STEPS)


def test_a_password_in_the_url_is_refused_and_not_repeated(server: Server) -> None:
    url = server.url.replace("evolve@", "evolve:s3cret@")
    for given in (url, f"{server.url}&password=s3cret"):
        with pytest.raises(UsageError, match=r"PGPASSWORD or ~/\.pgpass") as caught:
            Store.open(given)
        assert "s3cret" not in str(caught.value)
        assert "s3cret" not in repr(caught.value.__cause__)


@pytest.mark.slow  # bad locations are in cli/test_databases
def test_a_wrong_password_is_said_in_one_line(
    own_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_server.execute("ALTER USER evolve PASSWORD 'right'")
    rules = own_server.folder / "data" / "pg_hba.conf"
    rules.write_text("local all all scram-sha-256\n")
    url = own_server.url
    own_server.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 20
    monkeypatch.setenv("PGPASSWORD", "s3cret")
    while True:
        began = time.monotonic()
        try:
            Store.open(url, create=True).close()
        except UsageError as error:
            message = str(error)
            break
        assert began < deadline
    assert "PGPASSWORD" in message
    assert "s3cret" not in message
    assert "\n" not in message
    assert time.monotonic() - began < 10
    monkeypatch.setenv("PGPASSWORD", "right")
    with Store.open(url, create=True) as store:
        assert store.location == url


@pytest.mark.parametrize("word", ["host=/nowhere", "host=localhost:1"])
def test_a_server_that_is_not_there_is_said_at_once(word: str) -> None:
    began = time.monotonic()
    with pytest.raises(
        StoreError, match=r"no connection to the server.*check that it runs"
    ) as caught:
        Store.open(f"postgresql://evolve@/postgres?{word}", create=True)
    assert time.monotonic() - began < 15
    assert "\n" not in str(caught.value)


def test_a_server_that_still_starts_is_awaited(proxy: CuttingProxy, url: str) -> None:
    proxy.refuse(6)
    with Store.open(proxy.url(url), create=True) as store:
        run = new_run(store).id
    proxy.refuse(6)
    with Store.open(proxy.url(url)) as store:
        assert store.run().id == run


def test_a_server_that_never_ends_its_start_is_said(
    proxy: CuttingProxy, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.store.postgresql.connections.PATIENCE_S", 0.5)
    proxy.refuse(1000)
    with pytest.raises(StoreError, match=r"starting up.*check that it runs") as caught:
        Store.open(proxy.url(url), create=True)
    proxy.refuse(0)
    assert "\n" not in str(caught.value)


def test_what_is_no_url_is_said() -> None:
    with pytest.raises(UsageError, match="write postgresql://USER@HOST"):
        Store.open("postgresql://evolve@host/db?nonsense=1")


def test_an_empty_database_is_said_and_nothing_is_made_in_it(server: Server, url: str) -> None:
    with pytest.raises(UsageError, match="is empty; check the URL"):
        Store.open(url)
    assert server.execute("SELECT * FROM pg_tables WHERE schemaname = current_schema()", url) == []


def test_tables_of_another_program_are_left_alone(server: Server, url: str) -> None:
    server.execute("CREATE TABLE bookmarks (url text)", url)
    with pytest.raises(UsageError, match="tables of another program"):
        Store.open(url, create=True)


def test_a_schema_that_does_not_exist_is_named_with_the_remedy(server: Server) -> None:
    with pytest.raises(StoreError, match="CREATE SCHEMA"):
        Store.open(f"{server.url}&options=-csearch_path%3Dnowhere", create=True)


@pytest.mark.parametrize(
    ("version", "remedy"), [(VERSION + 1, "pip install -U"), (5, "start a new one")]
)
def test_another_schema_version_is_refused_with_what_to_do(
    server: Server, url: str, version: int, remedy: str
) -> None:
    Store.open(url, create=True).close()
    server.execute(f"UPDATE schema_version SET version = {version}", url)
    with pytest.raises(UsageError, match=f"has schema {version}.*{remedy}"):
        Store.open(url)


def test_several_processes_may_create_the_same_database(url: str) -> None:
    threads = [
        threading.Thread(target=lambda: Store.open(url, create=True).close()) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store.open(url) as store:
        assert store.runs() == []


def test_text_that_the_server_cannot_hold_is_taken(url: str) -> None:
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        ticket = store.ask(run, "seed", ())
        store.propose(ticket, Proposal(program=program(1), note="a \0 b"))
        assert store.step(run, 0).note == "a \ufffd b"


def test_a_backup_of_a_server_is_a_file(url: str, tmp_path: Path) -> None:
    with Store.open(url, create=True) as store:
        run = new_run(store).id
        search(store, run, 20)
        store.backup(tmp_path / "copy.db")
        with Store.open(tmp_path / "copy.db") as copy:
            assert list(copy.dump(run)) == list(store.dump(run))
    assert [each.name for each in tmp_path.iterdir()] == ["copy.db"]


PASSING = ("starting up", "shutting down", "in recovery mode", "not yet accepting connections")
LASTING = ("not accepting connections", "out for lunch")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("state", [*PASSING, *LASTING])
def test_a_server_is_waited_for_only_while_it_starts_or_stops_and_a_line_says_so(
    state: str, read_only: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "PATIENCE_S", 0.2)
    with closing(RefusingServer(f"the database system is {state}")) as refusing:
        with pytest.raises(StoreError, match=state) as caught:
            Store.open(refusing.url, create=not read_only, read_only=read_only)
        said = [record.getMessage() for record in caplog.records]
        if state in LASTING:
            assert (refusing.connections, said) == (1, [])
        else:
            assert refusing.connections > 1
            assert len(said) == 1
            assert said[0].startswith(f"{refusing.url}: the server does not answer since ")
            assert "again within 0.2 s" in said[0]
    assert "\n" not in str(caught.value)
    assert ("name the primary server" in str(caught.value)) is (state == LASTING[0])
