"""Invariants of `evolve db copy`, from each back end to each other.

1. The copy holds everything: whole and canonical dumps, slots, costs and sizes of texts are equal.
2. It goes on as the original would, with new numbers that are free.
3. What is copied while a search writes is one state of it; a target with runs is left alone.
"""

import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, Reservation, Usage
from evolve.store import Store
from tests.store.facts import SmallArchive, new_run, program, recount, replay, take_step
from tests.store.servers import Server
from tests.store.test_maintenance import search
from tests.store.test_postgresql import search_for

WAYS = [("sqlite", "postgresql"), ("postgresql", "sqlite"), ("postgresql", "postgresql")]


@pytest.fixture(params=WAYS, ids="-to-".join)
def pair(
    request: pytest.FixtureRequest, server: Server, tmp_path: Path
) -> Iterator[tuple[Store, Store]]:
    places = [
        str(tmp_path / f"{number}.db") if kind == "sqlite" else server.new_database()
        for number, kind in enumerate(request.param)
    ]
    with Store.open(places[0], create=True) as source, Store.open(places[1], create=True) as target:
        yield source, target


def filled(store: Store) -> list[int]:
    """Two runs with all that a run may hold."""
    runs = [new_run(store, name).id for name in ("first", "second")]
    search(store, runs[0], 40)
    take_step(store, runs[1], SmallArchive(), 3, assignment={"BLOCK": 64})
    asked = ModelRequest(messages=(Message("user", "Faster."),), purpose="propose", samples=2)
    answered, _ = store.request(runs[1], "write", (program(3).digest,), asked, "m/one")
    call = store.begin_call(answered, Reservation(tokens=9, usd=0.5))
    usage = Usage(prompt=1, completion=2)
    reply = ModelReply(status=CallStatus.COMPLETED, text="So. " * 99, usage=usage, cost_usd=0.1)
    store.end_call(call, reply)
    return runs


def test_a_copy_has_lost_nothing(pair: tuple[Store, Store]) -> None:
    source, target = pair
    runs = filled(source)
    assert source.copy_to(target) > 100
    assert target.runs() == source.runs()
    for run in runs:
        for canonical in (False, True):
            dumps = [list(store.dump(run, canonical=canonical)) for store in pair]
            assert dumps[0] == dumps[1]
        assert target.slots(run) == source.slots(run)
        assert target.costs(run) == source.costs(run)
        assert target.arms(run) == source.arms(run)
        assert target.held_visits(run) == source.held_visits(run)
    sizes = [store.size() for store in pair]
    for kind in ("sources", "samples", "prompts", "replies"):
        assert sizes[0][kind] == sizes[1][kind] > 0


@pytest.mark.sample(1)
def test_a_copy_goes_on_as_the_original_would(pair: tuple[Store, Store]) -> None:
    run, _ = filled(pair[0])
    pair[0].copy_to(pair[1])
    for store in pair:
        store.claim(run)
        archive = SmallArchive()
        archive.held = store.slots(run)
        for number in range(50, 60):
            take_step(store, run, archive, number, parents=(program(3).digest,))
        store.release(run, "finished", "enough")
    dumps = [list(store.dump(run, canonical=True)) for store in pair]
    assert dumps[0] == dumps[1]


@pytest.mark.sample(1)
def test_a_database_that_holds_runs_is_no_target(pair: tuple[Store, Store]) -> None:
    filled(pair[0])
    before = new_run(pair[1], "mine")
    with pytest.raises(UsageError, match="holds runs already"):
        pair[0].copy_to(pair[1])
    assert pair[1].runs() == [before]


@pytest.mark.sample(1)
def test_what_is_copied_beside_a_search_is_one_state_of_it(pair: tuple[Store, Store]) -> None:
    source, target = pair
    ours, theirs = multiprocessing.Pipe()
    writer = multiprocessing.get_context("fork").Process(
        target=search_for, args=(source.location, "first", 30, theirs)
    )
    writer.start()
    while not source.runs() or source.next_sequence(1) < 5:
        assert writer.is_alive()
    source.copy_to(target)
    writer.join(60)
    assert ours.poll()
    assert 0 < target.next_sequence(1) <= source.next_sequence(1)
    assert target.progress(1).evaluations == recount(target, 1).evaluations
    assert target.slots(1) == replay(target, 1)
