"""Quotas end runs as limits do: those of one user's runs are held together.

Invariants:
- the spending of other runs counts, also while they spend;
- a run that spends nothing of a used-up quota goes on;
- a change of a quota is noticed by runs that are under way.
"""

import asyncio
from functools import partial

import pytest

from evolve.core.records import Account, Quota
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Outcome, Pipeline
from evolve.search.quotas import Quotas
from evolve.search.termination import from_config
from evolve.store import RunRow, Store
from evolve.store.database.user import current_user
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.search.calling import writing
from tests.search.conftest import make_search, variants
from tests.search.models import COST, WORST, ScriptedModel

ME = Account("user", current_user())


def limited(store: Store, run: RunRow):
    read = partial(store.allowances, run.user, run.project, run.id)
    return from_config({"evaluations": 40}) | Quotas(read)


def another(store: Store, name: str, project: str = "") -> RunRow:
    config = {"project": project}
    return store.create_run(name=name, task=synthetic_task(), config=config, seed=1)


def without_model(store: Store, run: RunRow) -> Search:
    """Each run's programs are its own: a verdict that another run has paid for costs nothing."""
    return make_search(store, run, operators=variants(), reuse=False)


async def search(store: Store, run: RunRow, model: ScriptedModel | None = None) -> Outcome:
    engine = without_model(store, run) if model is None else writing(store, run, model)
    judge = SyntheticEvaluator(latency_s=0.002)
    return await Pipeline(engine, judge, limited(store, run), verify=False).run()


def test_runs_of_one_user_hold_a_quota_in_usd_together(store, run):
    limit = 8 * WORST.usd
    store.set_quota(Quota(account=ME, usd=limit))
    other = another(store, "other")
    first = asyncio.run(search(store, run, ScriptedModel(slots=4)))
    second = asyncio.run(search(store, other, ScriptedModel(slots=4)))
    for outcome in (first, second):
        assert f"of {limit:.2f} USD of {ME} used" in outcome.reason
    spent = [store.progress(each.id).usd for each in (run, other)]
    assert limit - WORST.usd < sum(spent) <= limit
    assert store.quotas()[0].spent.usd == pytest.approx(sum(spent))


@pytest.mark.slow  # a quota that is set meanwhile is below
def test_a_quota_of_device_time_ends_a_run_that_others_leave_too_little(store, run):
    asyncio.run(search(store, run))
    spent = store.progress(run.id).device_time_s
    store.set_quota(Quota(account=Account("project", "kernels"), device_time_s=spent))
    free, bound = another(store, "free"), another(store, "bound", "kernels")
    for each in (free, bound):
        asyncio.run(search(store, each))
    assert store.progress(free.id).device_time_s == pytest.approx(spent)
    store.set_quota(Quota(account=ME, device_time_s=2 * spent))
    outcome = asyncio.run(search(store, another(store, "last")))
    assert f"device time of {ME} used" in outcome.reason
    assert store.progress(store.run("last").id).evaluations == 0


@pytest.mark.slow  # quotas in USD are above
def test_a_run_without_a_model_goes_on_with_no_money_left(store, run):
    other = another(store, "other")
    asyncio.run(search(store, run, ScriptedModel()))
    store.set_quota(Quota(account=ME, usd=COST))
    outcome = asyncio.run(search(store, other))
    assert "evaluations used" in outcome.reason


def test_a_quota_that_is_set_while_a_run_is_under_way_ends_it(store, run):
    async def body() -> Outcome:
        judge = SyntheticEvaluator(latency_s=0.2)
        pipeline = Pipeline(without_model(store, run), judge, limited(store, run), verify=False)
        quota = Quota(account=ME, device_time_s=1e-6)
        asyncio.get_running_loop().call_later(0.5, store.set_quota, quota)
        return await pipeline.run()

    assert "device time" in asyncio.run(body()).reason
    assert 0 < store.progress(run.id).evaluations < 40


def test_the_audit_log_tells_of_the_start_the_end_and_the_resume(store, run):
    asyncio.run(search(store, run))
    asyncio.run(search(store, run))
    entries = [(each.action, each.run) for each in store.audit_log(9)]
    actions = ["started", "finished", "resumed", "finished"]
    assert entries == [(action, run.name) for action in actions]
    assert "evaluations used" in store.audit_log(9)[-1].detail
