"""Invariants.

1. A backup taken while a search writes is whole, and resumes like the original.
2. Pruning drops raw samples and feedback of programs that led nowhere, and nothing else.
3. The sizes add up to the files.
"""

import random
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.core.errors import UsageError
from evolve.store import Store
from tests.store.facts import (
    SmallArchive,
    evaluation,
    new_run,
    program,
    recount,
    replay,
    take_step,
)


def search(store: Store, run: int, count: int) -> SmallArchive:
    """Programs 1, 2, ... each made from the one with half its number, with bulky samples."""
    archive, draw = SmallArchive(), random.Random(3)
    for number in range(1, count + 1):
        samples = {"large": {"candidate": [draw.random() for _ in range(200)]}}
        judged = replace(evaluation(1 + number % 7), samples=samples, feedback=f"try {number}")
        parents = (program(number // 2).digest,) if number > 1 else ()
        take_step(store, run, archive, number, parents=parents, judged=judged)
    return archive


def test_a_backup_during_a_search_is_whole(store: Store, tmp_path: Path) -> None:
    run = new_run(store).id
    writer = threading.Thread(target=search, args=(store, run, 150))
    writer.start()
    copies = [tmp_path / f"copy{number}.db" for number in range(5)]
    for copy in copies:
        store.backup(copy)
    writer.join()
    for copy in copies:
        with Store.open(copy) as opened:
            if opened.runs():
                assert opened.progress(run) == recount(opened, run)
                assert opened.slots(run) == replay(opened, run)
    last = tmp_path / "last.db"
    store.backup(last)
    with Store.open(last) as opened:
        assert list(opened.dump(run)) == list(store.dump(run))
        opened.claim(run)
        take_step(opened, run, SmallArchive(), 500)


def test_a_backup_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        store.backup(existing)
    with pytest.raises(UsageError, match="cannot write the backup"):
        store.backup(tmp_path / "no" / "such" / "folder.db")
    assert existing.read_text() == "mine"
    assert sorted(item.name for item in tmp_path.iterdir() if item.suffix == ".partial") == []


def test_pruning_keeps_elites_their_ancestors_and_every_verdict(store: Store) -> None:
    run, other = new_run(store).id, new_run(store, "other").id
    archive = search(store, run, 60)
    untouched = replace(evaluation(1.5), samples={"only": {"candidate": [1.0]}})
    take_step(store, other, SmallArchive(), 1, judged=untouched)
    before = {step.sequence: store.evaluation(run, step.sequence) for step in store.steps(run)}
    steps = list(store.steps(run))
    kept = {
        step.program
        for held in archive.held.values()
        for step in store.ancestors(run, held.program)
    }
    assert 4 < len(kept) < 60

    removed = store.prune(run)

    assert removed.evaluations == 60 - len(kept)
    assert removed.bytes > 0
    with closing(sqlite3.connect(store.location)) as connection:
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert list(store.steps(run)) == steps
    assert store.slots(run) == archive.held
    for step in steps:
        was = before[step.sequence]
        assert was is not None
        expected = was if step.program in kept else replace(was, samples={}, feedback="")
        assert store.evaluation(run, step.sequence) == expected
        assert step.program is not None
        assert store.source(step.program)
    assert store.evaluation(other, 0) == untouched
    assert store.prune(run).evaluations == 0


def test_pruning_can_keep_the_best_few_only(store: Store) -> None:
    run = new_run(store).id
    archive = search(store, run, 60)
    best = max(archive.held.values(), key=lambda held: held.fitness.value)
    line = {step.sequence for step in store.ancestors(run, best.program)}
    store.prune(run, keep=1)
    with_samples = {
        step.sequence
        for step in store.steps(run)
        if (found := store.evaluation(run, step.sequence)) and found.samples
    }
    assert with_samples == line


def test_a_run_under_way_elsewhere_is_not_pruned(store: Store) -> None:
    run = new_run(store).id
    store.claim(run)
    with Store.open(store.location) as other, pytest.raises(UsageError, match="being continued"):
        other.prune(run)


def test_sizes_add_up_to_the_files(store: Store) -> None:
    search(store, new_run(store).id, 40)
    sizes = store.size()
    store.close()  # writes the log back
    assert sizes["samples"] > sizes["sources"] > sizes["environments"] > 0
    assert sizes["log"] > 0
    total = sum(size for kind, size in sizes.items() if kind != "log")
    assert total == Path(store.location).stat().st_size
