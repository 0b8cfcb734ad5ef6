"""Invariants.

1. Slots equal a replay of the offers, and equal the archive that made them.
2. Offers come back exactly as told, in order, however many there are.
3. A program may hold several slots, with one elite; what an offer moves follows from it alone.
"""

import random

import pytest

from evolve.core.protocols import AddStatus, Offer, Proposal
from evolve.store import Store
from tests.store.facts import (
    SmallArchive,
    elite,
    evaluation,
    new_run,
    program,
    replay,
    take_step,
)
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)


def test_slots_equal_the_archive_and_a_replay_of_its_offers(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()
    draw = random.Random(1)
    for _ in range(120):
        number = draw.randrange(40)  # the same program comes again, with other tunables
        judged = evaluation(draw.uniform(0.5, 3.0))
        take_step(store, run, archive, number, judged=judged, assignment={"B": draw.randrange(9)})
    assert len(archive.held) == 4
    assert store.slots(run) == archive.held == replay(store, run)
    assert list(store.slots(run)) == sorted(archive.held)


@pytest.mark.slow
def test_offers_come_back_in_order_over_many_pages(store: Store) -> None:
    run = new_run(store).id
    archive, told = SmallArchive(), []
    for number in range(1, 1102):
        ticket = store.propose(store.ask(run, "seed", ()), Proposal(program=program(number)))
        judged = evaluation(1.0 + number % 17)
        ticket = store.evaluated(ticket, judged)
        told.append((elite(ticket, judged), archive.offer(elite(ticket, judged), number)))
        store.tell(ticket, *told[-1])
    assert list(store.offers(run)) == told
    assert [step.sequence for step in store.steps(run)] == list(range(1101))
    assert [step.offer for step in store.steps(run)] == [offer.status for _, offer in told]


def test_a_program_that_moves_leaves_its_old_slot(store: Store) -> None:
    run = new_run(store).id
    moves = [
        (1, Offer(AddStatus.NEW, "a")),
        (2, Offer(AddStatus.NEW, "b")),
        (1, Offer(AddStatus.IMPROVED, "b", evicted=program(2).digest)),
        (3, Offer(AddStatus.NEW, "c", evicted=program(1).digest)),  # evicted from another slot
    ]
    held = []
    for step, (number, offer) in enumerate(moves):
        proposal = Proposal(program=program(number), assignment={"step": step})
        ticket = store.propose(store.ask(run, "tune", ()), proposal)
        ticket = store.evaluated(ticket, evaluation(1.0 + step))
        store.tell(ticket, elite(ticket, evaluation(1.0 + step)), offer)
        held.append({slot: kept.sequence for slot, kept in store.slots(run).items()})
    assert held == [{"a": 0}, {"a": 0, "b": 1}, {"b": 2}, {"c": 3}]


def test_a_program_may_hold_several_slots_and_shows_one_elite_in_them(store: Store) -> None:
    run = new_run(store).id
    one, two = program(1).digest, program(2).digest
    events = [
        (1, Offer(AddStatus.NEW, "0/a")),
        (2, Offer(AddStatus.NEW, "1/a", moves={"0/b": two, "1/b": one})),
        (1, Offer(AddStatus.IMPROVED, "0/a", moves={"1/b": one})),  # measured again
        (3, Offer(AddStatus.NOT_ADDED, moves={"0/b": None})),
        (3, Offer(AddStatus.IMPROVED, "1/a")),  # the second lives nowhere else, but is not evicted
        (1, Offer(AddStatus.NOT_ADDED, evicted=one)),
    ]
    held = []
    for step, (number, offer) in enumerate(events):
        proposal = Proposal(program=program(number), assignment={"step": step})
        ticket = store.propose(store.ask(run, "tune", ()), proposal)
        judged = evaluation(1.0 + step)
        ticket = store.evaluated(ticket, judged)
        store.tell(ticket, elite(ticket, judged), offer)
        held.append({slot: kept.sequence for slot, kept in store.slots(run).items()})
    assert held == [
        {"0/a": 0},
        {"0/a": 0, "0/b": 1, "1/a": 1, "1/b": 0},
        {"0/a": 2, "0/b": 1, "1/a": 1, "1/b": 2},
        {"0/a": 2, "1/a": 1, "1/b": 2},
        {"0/a": 2, "1/a": 4, "1/b": 2},
        {"1/a": 4},
    ]
    assert [offer for _, offer in store.offers(run)] == [offer for _, offer in events]
