"""Searches with a scripted model, run to their end, and what the store holds of them."""

import asyncio
import json

from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.search.termination import from_config
from evolve.testing.synthetic import SyntheticEvaluator
from tests.search.conftest import make_search
from tests.search.models import run_simulated, writer


def run_with(search, evaluator=None, *, said=None, simulated=False, serial=False, **limits):
    async def body() -> Outcome:
        return await Pipeline(
            search,
            evaluator or SyntheticEvaluator(),
            from_config(limits),
            say=(said if said is not None else []).append,
            serial=serial,
            verify=False,
        ).run()

    return run_simulated(body) if simulated else asyncio.run(body())


def writing(store, run, model, **changes):
    return make_search(store, run, **{"operators": writer(), "model": model} | changes)


def tickets(store, run):
    return [line for line in map(json.loads, store.dump(run.id)) if line["kind"] == "ticket"]


def readings(store, run):
    return [r["reading"] for t in tickets(store, run) for r in t.get("rounds", ())]
