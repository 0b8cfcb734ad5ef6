"""Invariants, after `kill -9` at any moment and a resume.

1. Every change whose method had returned is there.
2. Counters equal a recount of the facts, slots equal a replay of the offers.
3. No evaluation is recorded twice, no sequence number is missing.
"""

import multiprocessing
import os
import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from evolve.core.protocols import Failed, Proposal
from evolve.store import Store, Ticket, TicketState
from tests.store.facts import (
    SmallArchive,
    elite,
    evaluation,
    new_run,
    program,
    recount,
    replay,
)

FORK = multiprocessing.get_context("fork")
ORDER = list(TicketState)


def search_until_killed(path: Path, run: int, log: Path) -> None:
    """A small engine: resumes open tickets, then goes on; logs what was acknowledged."""
    acknowledged = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    store = Store.open(path)
    store.claim(run)
    archive = SmallArchive()
    archive.held = store.slots(run)
    waiting = store.open_tickets(run)
    while True:
        ticket = waiting.pop(0) if waiting else store.ask(run, "tune", ())
        for done in advance(store, ticket, archive):
            os.write(acknowledged, f"{done.sequence} {done.state}\n".encode())
        store.heartbeat(run, 0.125)


def advance(store: Store, ticket: Ticket, archive: SmallArchive) -> list[Ticket]:
    number = ticket.sequence + 1
    seen = [ticket]
    if ticket.state is TicketState.ASKED:
        made = Failed("no idea") if number % 7 == 0 else Proposal(program=program(number))
        seen.append(ticket := store.propose(ticket, made))
    if ticket.state is TicketState.PROPOSED:
        store.start_evaluation(ticket)
        judged = evaluation(1 + (number * 37 % 101) / 100)
        seen.append(ticket := store.evaluated(ticket, judged))
    if ticket.state is TicketState.EVALUATED:
        assert ticket.evaluation is not None
        candidate = elite(ticket, ticket.evaluation)
        store.tell(ticket, candidate, archive.offer(candidate, number))
    return seen


def kill_and_check(path: Path, run: int, log: Path, after_s: float) -> None:
    child = FORK.Process(target=search_until_killed, args=(path, run, log))
    child.start()
    before = log.stat().st_size
    while log.stat().st_size == before and child.is_alive():
        time.sleep(0.002)
    time.sleep(after_s)
    child.kill()
    child.join()
    with Store.open(path) as store:
        states = {step.sequence: step for step in store.steps(run)}
        assert list(states) == list(range(len(states)))
        waiting = {ticket.sequence: ticket.state for ticket in store.open_tickets(run)}
        for line in log.read_text().split("\n")[:-1]:
            sequence, state = line.split()
            stored = waiting.get(int(sequence), TicketState.TOLD)
            assert int(sequence) in states
            assert ORDER.index(stored) >= ORDER.index(TicketState(state))
        assert store.progress(run) == recount(store, run)
        assert store.slots(run) == replay(store, run)


def rounds(path: Path, count: int) -> None:
    log = path.with_suffix(".log")
    log.touch()
    with Store.open(path, create=True) as store:
        run = new_run(store).id
    draw = random.Random(5)
    for _ in range(count):
        kill_and_check(path, run, log, draw.uniform(0, 0.05))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    with Store.open(path) as store:
        assert store.progress(run).evaluations > 0


def test_nothing_is_lost_when_the_writer_is_killed_twenty_times(path: Path) -> None:
    rounds(path, 20)


def test_nothing_is_lost_without_the_write_ahead_log(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evolve.store.sqlite.filesystem.is_shared_between_hosts", lambda _: True)
    rounds(path, 5)


@pytest.mark.slow
def test_nothing_is_lost_when_the_writer_is_killed_three_hundred_times(path: Path) -> None:
    rounds(path, 300)
