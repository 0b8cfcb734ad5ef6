"""kill -9 at any moment, then resume (promise 1):

1. No stored step is lost or changed.
2. No evaluation that was stored is started again.
3. Counters equal a recount of the facts, and the budget is met exactly.
4. The archive is what the recorded offers make.
"""

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from archives import TopK
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import instance_digest
from evolve.store import Store
from tests import forked
from tests.store.servers import Server, running_server

BUDGET = 100

History = tuple[dict[int, object], int]  # steps stored at a kill, lines of the journal then


def start(folder: Path, location: str) -> forked.Forked:
    words = (location, str(folder / "journal"), str(BUDGET))
    return forked.start("tests.search.crash_run", *words)


def stored(location: str) -> dict[int, object]:
    """Steps with a verdict, by sequence."""
    if not Store.exists(location):
        return {}
    store = Store.open(location)
    try:
        steps = {s.sequence: s for s in store.steps(store.run("crash").id)} if store.runs() else {}
        return {sequence: step for sequence, step in steps.items() if step.offer or step.failure}
    finally:
        store.close()


def journal(folder: Path) -> list[str]:
    path = folder / "journal"
    return path.read_text().splitlines() if path.exists() else []


def check_kills(folder: Path, kills: int, location: str = "", server: Server | None = None) -> None:
    """Kill the search so often; if there is a `server`, this too every other time, before it."""
    location = location or str(folder / "evolve.db")
    rng = random.Random(kills)
    history: list[History] = []
    for number in range(kills):
        process = start(folder, location)
        begun = len(journal(folder))
        # Wait until it evaluates, then kill at a random moment: most starts are spent importing.
        while process.poll() is None and len(journal(folder)) == begun:
            time.sleep(0.005)
        time.sleep(rng.uniform(0.0, 0.06))
        if server is not None and number % 2:
            server.kill()
            server.start()
            time.sleep(rng.uniform(0.0, 0.3))
        process.kill()
        process.wait()
        history.append((stored(location), len(journal(folder))))
    check_end(folder, history, location)


def check_end(folder: Path, history: list[History], location: str) -> None:
    process = start(folder, location)
    assert process.wait(timeout=60) == 0, process.printed()[1][-2000:]
    store = Store.open(location)
    run = store.run("crash")
    steps = {step.sequence: step for step in store.steps(run.id)}
    starts = journal(folder)
    for before, started in history:
        assert {sequence: steps[sequence] for sequence in before} == before
        done = {key(store, run.id, step) for step in before.values() if step.status}
        assert not done & set(starts[started:])
    assert sorted(steps) == list(range(len(steps)))
    judged = [s for s in steps.values() if s.status and s.status is not Status.INFRA]
    full = [s for s in judged if s.fidelity is Fidelity.SEARCH]
    assert store.progress(run.id).evaluations == len(full) == BUDGET
    assert run.state == "finished"
    archive = TopK(capacity=16)
    for elite, offer in store.offers(run.id):
        assert archive.offer(elite) == offer
    assert archive.slots() == store.slots(run.id)
    check_visits(store, run.id, steps)
    store.close()


def check_visits(store: Store, run: int, steps) -> None:
    """Every ticket is counted once at its main parent, and told where it ended."""
    tickets = [store.ticket(run, sequence) for sequence in steps]
    asked = Counter(ticket.parents[0] for ticket in tickets if ticket.parents)
    counted = store.held_visits(run)
    assert len(counted) == 16
    assert any(visits.asked for visits in counted.values())
    assert {program: visits.asked for program, visits in counted.items()} == {
        program: asked[program] for program in counted
    }
    assert all(visits.asked == visits.told for visits in counted.values())


def key(store: Store, run: int, step) -> str:
    again = store.ticket(run, step.sequence).proposal.is_reevaluation
    repeat = store.repeat(run, step.sequence) if again else 0
    return f"{instance_digest(step.program, step.assignment)} {step.fidelity} {repeat}"


def test_eight_kills_lose_and_repeat_nothing(tmp_path):
    check_kills(tmp_path, 8)


@pytest.mark.slow
def test_kills_of_a_search_and_its_server_lose_and_repeat_nothing(tmp_path):
    with running_server() as server:
        check_kills(tmp_path, 6, server.new_database(), server)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_kills_of_a_search_and_its_server_lose_and_repeat_nothing(tmp_path):
    with running_server() as server:
        check_kills(tmp_path, 100, server.new_database(), server)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_fifty_kills_lose_and_repeat_nothing(tmp_path):
    check_kills(tmp_path, 50)
