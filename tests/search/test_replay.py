"""A recorded run is repeated byte for byte from its database (`device=replay`), without a judge."""

import asyncio

import pytest

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation import ReplayEvaluator
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator
from tests.search.conftest import make_search, run_to_end


def replay(recorded, run, into, seed):
    again = into.create_run(name="again", task=run.task, config=dict(run.config), seed=seed)
    limits = from_config({"evaluations": 20})
    judge = ReplayEvaluator(recorded, run.id)
    asyncio.run(Pipeline(make_search(into, again), judge, limits).run())
    return again


def test_a_replayed_run_has_the_same_canonical_dump(store, run, tmp_path):
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=20)
    with Store.open(tmp_path / "again.db", create=True) as other:
        again = replay(store, run, other, run.seed)
        dump = list(store.dump(run.id, canonical=True))
        assert list(other.dump(again.id, canonical=True)) == dump
        assert len(dump) > 20


@pytest.mark.slow  # a replay with the same seed is above
def test_replay_with_another_seed_says_what_it_needs(store, run, tmp_path):
    run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=6)
    with (
        Store.open(tmp_path / "again.db", create=True) as other,
        pytest.raises(EvaluatorUnavailable, match="same seed"),
    ):
        replay(store, run, other, run.seed + 1)


def test_a_run_without_evaluations_cannot_be_replayed(store, run):
    with pytest.raises(UsageError, match="no evaluation"):
        ReplayEvaluator(store, run.id)
