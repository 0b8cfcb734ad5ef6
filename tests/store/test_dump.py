"""Invariants.

1. Two runs fed the same facts have the same canonical dump, whatever time and machine they took.
2. A dump holds every program once and every ticket, and each line is JSON.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.evaluation import Status
from evolve.core.protocols import Failed
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, program, take_step
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)


def search(store: Store, name: str, *, pace: float) -> int:
    run = new_run(store, name, folder=name).id
    archive = SmallArchive()
    store.claim(run)
    for number in range(1, 250):
        judged = replace(
            evaluation(1 + number % 13, device_time_s=pace * number),
            environment={"host": name},
            durations_s={"compile": pace},
            samples={"large": {"candidate": [pace]}},
        )
        if number % 9 == 0:
            judged = evaluation(None, status=Status.WRONG_VALUE)
        parents = (program(number // 2).digest,) if number > 1 else ()
        take_step(store, run, archive, number, parents=parents, judged=judged)
        store.heartbeat(run, pace)
    store.propose(store.ask(run, "tune", ()), Failed("nothing left"))
    store.ask(run, "tune", ())
    store.release(run, "finished", f"{pace} hours are over")
    return run


@pytest.mark.sample(1)
def test_the_same_search_gives_the_same_canonical_dump(store: Store, tmp_path: Path) -> None:
    first = search(store, "first", pace=1.0)
    second = search(store, "second", pace=2.0)
    assert list(store.dump(first, canonical=True)) == list(store.dump(second, canonical=True))
    assert list(store.dump(first)) != list(store.dump(second))
    with Store.open(tmp_path / "other.db", create=True) as other:
        third = search(other, "third", pace=3.0)
        assert list(other.dump(third, canonical=True)) == list(store.dump(first, canonical=True))


def test_another_search_gives_another_canonical_dump(store: Store) -> None:
    first, second = new_run(store, "a").id, new_run(store, "b").id
    take_step(store, first, SmallArchive(), 1, judged=evaluation(1.5))
    take_step(store, second, SmallArchive(), 1, judged=evaluation(1.6))
    assert list(store.dump(first, canonical=True)) != list(store.dump(second, canonical=True))


@pytest.mark.sample(1)
def test_a_dump_holds_everything_once(store: Store) -> None:
    run = search(store, "first", pace=1.0)
    lines = [json.loads(line) for line in store.dump(run)]
    assert lines[0]["kind"] == "run"
    assert lines[0]["config"] == {"folder": "first"}
    sources = [line["source"] for line in lines if line["kind"] == "program"]
    assert sources == [program(number).source for number in range(1, 250)]
    tickets = [line for line in lines if line["kind"] == "ticket"]
    assert [line["sequence"] for line in tickets] == list(range(251))
    assert tickets[4]["evaluation"] == json.loads(
        json.dumps(
            replace(
                evaluation(6.0, device_time_s=5.0),
                environment={"host": "first"},
                durations_s={"compile": 1.0},
                samples={"large": {"candidate": [1.0]}},
            ).to_json()
        )
    )
    assert (lines[-1]["kind"], lines[-1]["evaluations"]) == ("progress", 249)
