"""Invariants.

1. A run is found by its name with everything it was created with.
2. One process continues a run; a second one is told which, a dead one is replaced.
3. Whoever lost a run writes nothing more to it.
"""

import multiprocessing
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from archives import TopK
from evolve.core.errors import StoreError, UsageError
from evolve.core.protocols import Context, Proposal
from evolve.core.task import Case, Task
from evolve.search.engine import Search
from evolve.search.schedule import Scheduled
from evolve.search.selection import Greedy
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, program, take_step

FORK = multiprocessing.get_context("fork")


class Counting:
    """Each program is a child of the best."""

    parents = 1

    def propose(self, context: Context) -> Proposal:
        parents = tuple(elite.program for elite in context.parents)
        return Proposal(program=program(context.sequence), parents=parents)


def hold(path: Path, run: int, pipe: Connection) -> None:
    store = Store.open(path)
    try:
        store.claim(run)
    except UsageError as error:
        pipe.send(str(error))
        return
    pipe.send("held")
    pipe.recv()


@contextmanager
def another_process_holding(path: Path, run: int) -> Iterator[multiprocessing.process.BaseProcess]:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hold, args=(path, run, theirs))
    process.start()
    try:
        assert ours.recv() == "held"
        yield process
    finally:
        process.kill()
        process.join()


def age_heartbeats(path: Path, seconds: float) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE lease SET heartbeat = heartbeat - ?", (seconds,))
        connection.commit()


def test_a_run_is_found_with_everything_it_was_created_with(store: Store) -> None:
    task = Task(name="t", source="s", cases=(Case(name="c", constants={"N": 4}),), seeds=("a", "b"))
    config = {"baseline": "compile", "archive": {"capacity": 8}, "gpu": None}
    created = store.create_run(name="one", task=task, config=config, seed=11)
    assert (created.task, created.config, created.seed) == (task, config, 11)
    assert (created.state, created.reason, created.baseline) == ("running", "", "compile")
    newest = new_run(store, "two")
    assert store.run("one") == created
    assert store.run() == newest
    assert store.runs() == [created, newest]


def test_a_name_that_is_taken_names_both_remedies(store: Store) -> None:
    new_run(store)
    with pytest.raises(UsageError, match=r"name=first.*on_exists=resume.*on_exists=new"):
        new_run(store)


def test_a_name_or_seed_that_cannot_be_stored_is_refused(store: Store) -> None:
    with pytest.raises(UsageError, match="name is empty"):
        new_run(store, "")
    with pytest.raises(UsageError, match="seed=18446744073709551616 does not fit"):
        store.create_run(name="one", task=Task(name="t", source=""), config={}, seed=2**64)
    assert store.runs() == []


def test_an_unknown_run_lists_those_that_exist(store: Store) -> None:
    with pytest.raises(UsageError, match="no run yet"):
        store.run()
    new_run(store, "one")
    new_run(store, "two")
    with pytest.raises(UsageError, match="no run 'three' in this database; it holds two, one"):
        store.run("three")


def test_two_runs_in_one_file_share_programs_and_nothing_else(store: Store) -> None:
    one, two = new_run(store, "one").id, new_run(store, "two").id
    take_step(store, one, SmallArchive(), 1)
    assert store.progress(two).proposals == 0
    assert store.slots(two) == {}
    ticket = take_step(store, two, SmallArchive(), 1)
    assert ticket.sequence == 0
    assert store.slots(one) == store.slots(two)


def test_active_time_adds_up_over_heartbeats_and_resumes(store: Store) -> None:
    run = new_run(store).id
    store.claim(run)
    store.heartbeat(run, 2.5)
    store.release(run, "interrupted", "Ctrl-C")
    assert (store.run().state, store.run().reason) == ("interrupted", "Ctrl-C")
    store.claim(run)
    assert (store.run().state, store.run().reason) == ("running", "")
    store.heartbeat(run, 1.0)
    take_step(store, run, SmallArchive(), 1)
    assert store.progress(run).wall_time_s == store.step(run, 0).elapsed_s == 3.5


def test_a_second_process_is_told_who_continues_the_run(store: Store) -> None:
    run = new_run(store).id
    with another_process_holding(store.location, run) as holder:
        with pytest.raises(
            UsageError,
            match=rf"run 'first' is being continued by another process on .*pid {holder.pid}, "
            r"last heartbeat \d s ago",
        ):
            store.claim(run)
        with pytest.raises(StoreError, match="being continued by another process"):
            store.ask(run, "tune", ())
        store.claim(new_run(store, "second").id)  # other runs of the file are free


def test_claiming_in_two_processes_at_once_succeeds_in_one(store: Store) -> None:
    run = new_run(store).id
    pipes = [FORK.Pipe() for _ in range(4)]
    children = [
        FORK.Process(target=hold, args=(store.location, run, theirs)) for _, theirs in pipes
    ]
    for child in children:
        child.start()
    answers = [ours.recv() for ours, _ in pipes]
    for child in children:
        child.kill()
        child.join()
    assert answers.count("held") == 1
    assert all("wait for it or stop it" in answer for answer in answers if answer != "held")


def create(path: Path, number: int) -> None:
    with Store.open(path, create=True) as store:
        new_run(store, f"run{number}")


def test_several_processes_may_create_the_same_database(path: Path) -> None:
    children = [FORK.Process(target=create, args=(path, number)) for number in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 6
    with Store.open(path) as store:
        assert {run.name for run in store.runs()} == {f"run{number}" for number in range(6)}


def test_a_run_of_a_dead_process_is_free_at_once(store: Store) -> None:
    run = new_run(store).id
    with another_process_holding(store.location, run):
        assert store.run().state == "running"
    assert (store.run().state, store.run().reason) == ("interrupted", "its process is gone")
    store.claim(run)
    assert (store.run().state, store.run().reason) == ("running", "")


def test_a_run_whose_holder_is_silent_is_taken_over_and_the_holder_fenced(store: Store) -> None:
    run = new_run(store).id
    store.claim(run)
    ticket = store.ask(run, "tune", ())
    with Store.open(store.location) as other:
        age_heartbeats(store.location, 29)
        with pytest.raises(UsageError, match="29 s ago"):
            other.claim(run)
        age_heartbeats(store.location, 2)
        other.claim(run)
        for write in (
            lambda: store.heartbeat(run, 1.0),
            lambda: store.ask(run, "tune", ()),
            lambda: store.start_evaluation(ticket),
            lambda: store.release(run, "finished", ""),
        ):
            with pytest.raises(StoreError):
                write()
        assert other.open_tickets(run) == [ticket]
        assert other.progress(run).wall_time_s == 0


def test_who_lost_a_run_moves_no_ticket_on(store: Store) -> None:
    run = new_run(store).id
    store.claim(run)
    proposed, judged = (
        store.record(run, "tune", (), Proposal(program=program(number))) for number in (1, 2)
    )
    judged = store.evaluated(judged, evaluation())
    age_heartbeats(store.location, 31)
    with Store.open(store.location) as other:
        other.claim(run)
        before = list(other.dump(run))
        for write in (
            lambda: store.record(run, "tune", (), Proposal(program=program(3))),
            lambda: store.start_evaluation(proposed),
            lambda: store.evaluated(proposed, evaluation()),
            lambda: store.evaluated(judged, evaluation()),
            lambda: store.tell(judged, None, None),
        ):
            with pytest.raises(StoreError, match="being continued by another process"):
                write()
        assert list(other.dump(run)) == before


def test_without_a_write_ahead_log_no_second_host_works_in_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.store.sqlite.filesystem.is_shared_between_hosts", lambda _: True)
    with Store.open(path, create=True) as store:
        one, two = new_run(store, "one").id, new_run(store, "two").id
        with another_process_holding(path, one):
            store.claim(two)  # of the same host
            store.release(two, "interrupted", "")
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("UPDATE lease SET machine = 'elsewhere', host = 'node7'")
                connection.commit()
            with pytest.raises(UsageError, match=r"on node7 .* run 'one'.*one host at a time"):
                store.claim(two)
            with pytest.raises(UsageError, match="one host at a time"):
                Store.open(path)
            assert Store.open(path, read_only=True).run("two").id == two
            age_heartbeats(path, 31)
            store.claim(two)


def test_a_holder_on_another_machine_is_believed_until_it_is_silent(store: Store) -> None:
    run = new_run(store).id
    with another_process_holding(store.location, run):
        pass
    with closing(sqlite3.connect(store.location)) as connection:
        connection.execute("UPDATE lease SET machine = 'elsewhere', host = 'node7'")
        connection.commit()
    with pytest.raises(UsageError, match="on node7"):
        store.claim(run)
    age_heartbeats(store.location, 31)
    store.claim(run)


def test_what_a_store_keeps_of_the_run_that_it_continues_is_what_another_reads(
    path: Path, store: Store
) -> None:
    run = new_run(store).id
    store.claim(run)
    archive = SmallArchive()

    def check() -> None:
        with Store.open(path, read_only=True) as other:
            for _ in range(2):
                assert store.progress(run) == other.progress(run)
                assert store.proposals(run, "seed") == other.proposals(run, "seed")

    check()
    take_step(store, run, archive, 3)
    check()
    ticket = store.ask(run, "seed", ())
    check()
    ticket = store.propose(ticket, Proposal(program=program(9)))
    check()
    store.start_evaluation(ticket)
    ticket = store.evaluated(ticket, evaluation(2.0))
    check()
    store.tell(ticket, None, None)
    store.heartbeat(run, 2.5)
    check()
    with pytest.raises(StoreError):
        store.tell(store.ask(run, "seed", ()), None, None)
    check()
    store.release(run, "interrupted", "another goes on")
    with Store.open(path) as other:
        other.claim(run)
        take_step(other, run, archive, 6)
    check()


def test_a_step_of_a_search_takes_few_statements(store: Store) -> None:
    """Each is a message to a server; the evaluator's and the pipeline's own are not counted."""
    run = new_run(store)
    store.claim(run.id)
    operators = {"counting": Scheduled(operator=Counting())}
    search = Search(store=store, run=run, archive=TopK(), selection=Greedy(), operators=operators)
    statements: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        statements.append(statement)

    for count in range(1, 21):
        ticket = search.ask()
        assert ticket is not None
        search.request(ticket)
        store.start_evaluation(ticket)
        search.tell(ticket, evaluation(1 + count / 100))
        if count == 10:
            event.listen(Engine, "before_cursor_execute", note)
    event.remove(Engine, "before_cursor_execute", note)
    print("\n".join(statements[-30:]))
    assert len(statements) / 10 < 31
