"""A bench of three synthetic problems before a judge that works nothing out."""

import asyncio

from evolve.app.bench.plan import Plan, make_plan
from evolve.app.bench.runner import Bench
from evolve.cli.console.frontend import Terminal
from evolve.core.protocols import Evaluator
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator

DB = "runs/evolve.db"
WORDS = ("suite=kernelbench", "path=checkout", "search=seeds", "device=cpu", "final=search")


def planned(*words: str) -> Plan:
    return make_plan([*WORDS, f"store.path={DB}", "initial=[mine.py]", *words])


def at_terminal(plan: Plan, store: Store, judge: Evaluator, *, say=print, **settings) -> Bench:
    """As `evolve bench` makes it."""
    return Bench(plan, store, judge, say=say, interruptible=Terminal().interruptible, **settings)


def bench(plan: Plan, judge: SyntheticEvaluator | None = None, **settings) -> str:
    """Run it; why it ended early."""
    with Store.open(DB, create=True) as store:
        return asyncio.run(
            at_terminal(plan, store, judge or SyntheticEvaluator(), **settings).run()
        )
