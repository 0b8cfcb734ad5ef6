"""A verdict that an earlier version stored reads with the present status, labels and samples."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.evaluation import DEVICE_BUSY, DEVICE_OOM, EARLY_STOPPED, Label, Status
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, take_step

FORMER = {EARLY_STOPPED: "cut_short", DEVICE_OOM: "no_room", DEVICE_BUSY: "occupied"}


def rewritten(path: Path, changes: dict[str, str], blobs: dict[str, str]) -> None:
    """The database as an earlier version would have written it."""
    with sqlite3.connect(path) as database:
        for new, old in changes.items():
            database.execute("UPDATE evaluation SET status = replace(status, ?, ?)", (new, old))
            database.execute("UPDATE evaluation SET labels = replace(labels, ?, ?)", (new, old))
        for new, old in blobs.items():
            text = "replace(cast(bytes AS TEXT), ?, ?)"
            database.execute(f"UPDATE blob SET bytes = cast({text} AS BLOB)", (new, old))


def test_a_former_status_is_read_as_the_present_one(path: Path) -> None:
    judged = evaluation(None, status=Status.INVALID_INTERFACE, custom=None)
    with Store.open(path, create=True) as store:
        take_step(store, run := new_run(store).id, SmallArchive(), 1, judged=judged)
    rewritten(path, {"invalid_interface": "contract"}, {})
    with Store.open(path) as store:
        assert store.evaluation(run, 0) == judged
        assert [step.status for step in store.steps(run)] == [Status.INVALID_INTERFACE]


@pytest.mark.parametrize("name", FORMER)
def test_a_former_label_is_read_as_the_present_one(name: str, path: Path) -> None:
    judged = replace(evaluation(1.5), labels=(Label(name, "8 GiB"),))
    with Store.open(path, create=True) as store:
        take_step(store, run := new_run(store).id, SmallArchive(), 1, judged=judged)
    rewritten(path, {name: FORMER[name]}, {})
    with Store.open(path) as store:
        found = store.evaluation(run, 0)
        assert found == judged
        assert found.early_stopped == (name == EARLY_STOPPED)
        assert [step.labels for step in store.steps(run)] == [(name,)]


def test_former_samples_are_read_under_their_present_names(path: Path) -> None:
    rows = {"separate": [{"ms": {}}], "self_reported": {"eager": {"cold_ms": 1.0}}}
    judged = replace(evaluation(1.5), samples={"only": rows})
    with Store.open(path, create=True) as store:
        take_step(store, run := new_run(store).id, SmallArchive(), 1, judged=judged)
    rewritten(path, {}, {'"separate"': '"apart"', '"self_reported"': '"told"'})
    with Store.open(path) as store:
        assert store.evaluation(run, 0) == judged
