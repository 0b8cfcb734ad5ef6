"""What a display knows.

Invariants:
1. After a resume it stands where it stood: counts, the best, whether that is verified.
2. A better program is not called verified because the one before it was.
"""

import asyncio
from collections import Counter
from pathlib import Path

from evolve.cli import display, parts
from evolve.cli.display import Tally
from evolve.search.engine import Search
from evolve.search.pipeline import Pipeline
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.recording import record, settings


def tally_of(store: Store) -> Tally:
    config = settings("termination.evaluations=12")
    tally = Tally(config["termination"], parts.build_termination(config), "eager")
    tally.recall(store, store.run("demo"))
    return tally


def test_counts_and_best_are_those_of_the_store(recorded: Path):
    with Store.open(recorded) as store:
        tally = tally_of(store)
        steps = list(store.steps(store.run("demo").id))
    judged = Counter(str(step.status) for step in steps if step.status)
    assert tally.counts.total() == judged.total() > 12
    assert "verified in fresh processes" in tally.best_text()


def test_of_a_very_long_run_only_the_sitting_is_counted(recorded: Path, monkeypatch):
    monkeypatch.setattr(display, "MAX_RECOUNTED", 3)
    with Store.open(recorded) as store:
        assert tally_of(store).counts_text() == "none since the run was resumed"


def test_a_better_program_is_not_verified_yet(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = record(store, synthetic_task(), SyntheticEvaluator(), "termination.evaluations=2")
        tally = tally_of(store)
        before = tally.best
        config = settings("termination.evaluations=60")
        search = Search(
            store=store,
            run=run,
            archive=parts.build_archive(config),
            selection=parts.build_selection(config),
            operators=parts.build_operators(config),
        )
        pipeline = Pipeline(
            search,
            SyntheticEvaluator(),
            parts.build_termination(config),
            listeners=[tally.add],
            verify=False,
        )
        asyncio.run(pipeline.run())
    assert before is not None
    assert tally.best is not None
    assert tally.best.value > before.value
    assert tally.best_text().endswith("not verified yet")
