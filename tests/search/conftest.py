"""A run on the synthetic task, with a real store, real operators and a real archive."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from archives import TopK
from evolve.core.program import Program
from evolve.core.protocols import Context, Proposal
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.selection import Tournament
from evolve.search.termination import from_config
from evolve.store import RunRow, Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from operators import Recombine, Seed, Tune


class Variants:
    """Proposes new programs for ever, each to be measured in full."""

    parents = 0

    def propose(self, context: Context) -> Proposal:
        return Proposal(program=Program(f"{SEED_SOURCE}\n\nVARIANT = {context.sequence}\n"))


def variants() -> dict[str, Scheduled]:
    return {"variants": Scheduled(operator=Variants())}


def operators() -> dict[str, Scheduled]:
    return {
        "seed": Scheduled(operator=Seed(), weight=float("inf")),
        "tune": Scheduled(operator=Tune(), weight=4.0),
        "recombine": Scheduled(operator=Recombine(), weight=1.0),
    }


def make_search(store: Store, run: RunRow, **changes) -> Search:
    parts = {
        "archive": TopK(capacity=16),
        "selection": Tournament(size=2),
        "operators": operators(),
    }
    return Search(store=store, run=run, **(parts | changes))


def run_to_end(search: Search, evaluator: SyntheticEvaluator, **limits) -> Outcome:
    async def body() -> Outcome:
        return await Pipeline(search, evaluator, from_config(limits)).run()

    return asyncio.run(body())


def run_until_stopped(
    search: Search, evaluator: SyntheticEvaluator, evaluations: int = 9
) -> Outcome:
    """A session that is stopped under the first evaluation of a judge that takes long."""

    async def body() -> Outcome:
        limits = from_config({"evaluations": evaluations})
        pipeline = Pipeline(search, evaluator, limits, drain_s=0.02)
        session = asyncio.create_task(pipeline.run())
        while not evaluator.calls and not session.done():
            await asyncio.sleep(0.005)
        pipeline.request_stop("SIGTERM")
        return await session

    return asyncio.run(body())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store.open(tmp_path / "evolve.db", create=True)
    yield opened
    opened.close()


@pytest.fixture
def run(store: Store) -> RunRow:
    return store.create_run(
        name="demo", task=synthetic_task(), config={"baseline": "eager"}, seed=7
    )
