"""Invariant: what a step asks of SQLite does not grow with the run.

Counted in instructions of SQLite's virtual machine, which no other work on the machine changes.
"""

from collections.abc import Callable
from functools import partial

import pytest

from evolve.core.program import instance_digest
from evolve.store import Store
from tests.store.facts import SmallArchive, new_run, program, take_step


def instructions(store: Store, action: Callable[[], object]) -> int:
    """How many instructions an action takes."""
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    with store._database.driver() as connection:
        connection.set_progress_handler(tick, 1)
    action()
    with store._database.driver() as connection:
        connection.set_progress_handler(None, 1)
    return ticks


def grow(store: Store, run: int, archive: SmallArchive, numbers: range) -> None:
    for number in numbers:
        take_step(store, run, archive, number, parents=(program(max(1, number - 1)).digest,))


@pytest.mark.slow
def test_a_step_and_its_questions_cost_the_same_late_in_a_run(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    take_step(store, run, archive, 1)
    known = program(1).digest

    def questions() -> None:
        store.trials(run, known)
        store.near_duplicate_of(run, program(7))
        store.seen(run, instance_digest(known, {}))
        store.made_by(run, "never")
        store.proposals(run, "tune")
        store.source(known)
        store.progress(run)
        store.open_tickets(run)
        store.slots(run)
        store.step(run, 0)
        store.ancestors(run, program(5).digest)

    costs = []
    for start, end in ((2, 50), (51, 1200)):
        grow(store, run, archive, range(start, end))
        step = partial(take_step, store, run, archive, end, parents=(known,))
        costs.append((instructions(store, step), instructions(store, questions)))
    early, late = costs
    assert early[0] > 0
    assert late[0] < 1.2 * early[0]
    assert late[1] < 1.2 * early[1]
