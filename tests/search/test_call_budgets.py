"""Budgets hold with calls under way: in USD, tokens, evaluations and proposals."""

import asyncio
from dataclasses import replace

import pytest

from evolve.core.model import Reservation
from evolve.search.execution.pipeline import Pipeline
from evolve.search.termination import from_config
from evolve.store import TicketState
from evolve.testing.synthetic import SyntheticEvaluator
from tests.search.calling import run_with, writing
from tests.search.models import (
    COST,
    PAID,
    WORST,
    ScriptedModel,
    echo,
)


def test_a_usd_budget_is_never_exceeded_whatever_is_under_way(store, run):
    paid = []

    def script(request, number):
        paid.append(store.progress(run.id))
        return echo(request, number)

    model = ScriptedModel(script, slots=8, latency_s=0.01)
    outcome = run_with(writing(store, run, model), SyntheticEvaluator(slots=4), usd=0.5)
    assert outcome.finished
    assert "of 0.50 USD used, counting what is to be sent with up to 1,000 tokens" in outcome.reason
    assert all(now.usd + now.usd_reserved <= 0.5 + 1e-9 for now in paid)
    spent = store.progress(run.id).usd
    assert 0.5 - WORST.usd < spent <= 0.5


class Queueing(ScriptedModel):
    """Its calls wait for their turn before they are sent, as those of a key with a rate limit."""

    async def complete(self, request, sample, commit):
        await asyncio.sleep(0.1)
        return await super().complete(request, sample, commit)


def test_a_usd_budget_counts_calls_that_wait_to_be_sent(store, run):
    model = Queueing(slots=8)
    run_with(writing(store, run, model), usd=2.5 * WORST.usd)
    assert store.progress(run.id).usd <= 2.5 * WORST.usd


def test_a_call_that_never_came_to_be_sent_is_not_charged(store, run):
    class Waiting(ScriptedModel):
        async def complete(self, request, sample, commit):
            await asyncio.sleep(60)

    async def body():
        limits = from_config({"evaluations": 9})
        search = writing(store, run, Waiting())
        pipeline = Pipeline(search, SyntheticEvaluator(), limits, drain_s=0.1)
        asyncio.get_running_loop().call_later(0.3, pipeline.request_stop, "SIGTERM")
        return await pipeline.run()

    assert not asyncio.run(body()).finished
    assert {ticket.state for ticket in store.open_tickets(run.id)} == {TicketState.ASKED}
    assert (store.progress(run.id).calls, store.progress(run.id).tokens) == (0, 0)
    assert store.pending_calls(run.id) == []


def test_a_budget_may_be_met_exactly(store, run):
    model = ScriptedModel(slots=1, worst=Reservation(tokens=PAID.total, usd=COST))
    run_with(writing(store, run, model), usd=3 * COST)
    assert store.progress(run.id).calls == 3


def test_a_token_budget_holds(store, run):
    model = ScriptedModel(slots=3)
    outcome = run_with(writing(store, run, model), tokens=5000)
    assert "tokens" in outcome.reason
    assert 4000 < store.progress(run.id).tokens <= 5000


def test_an_unpriced_call_makes_the_cost_unknown_and_not_zero(store, run):
    model = ScriptedModel(
        lambda request, number: replace(echo(request, number), cost_usd=None),
        worst=Reservation(tokens=1000, usd=None),
    )
    run_with(writing(store, run, model), evaluations=3)
    assert store.progress(run.id).usd is None
    assert store.progress(run.id).tokens == 3 * PAID.total
    [cost] = store.costs(run.id)
    assert (cost.calls, cost.unpriced, cost.unknown) == (3, 3, 0)


def test_a_missing_count_is_charged_as_reserved(store, run):
    model = ScriptedModel(
        lambda request, number: replace(echo(request, number), cost_usd=None, usage=None)
    )
    run_with(writing(store, run, model), evaluations=1)
    assert store.progress(run.id).usd == pytest.approx(WORST.usd)
    assert store.progress(run.id).tokens == WORST.tokens


def test_an_evaluation_budget_is_met_exactly_with_calls_ahead(store, run):
    model = ScriptedModel(slots=16, latency_s=0.01)
    evaluator = SyntheticEvaluator(slots=2, latency_s=0.002)
    run_with(writing(store, run, model), evaluator, evaluations=9)
    assert store.progress(run.id).evaluations == 9
    assert len(model.asked) == 9


def test_a_proposal_budget_is_met_exactly_with_calls_ahead(store, run):
    model = ScriptedModel(slots=8, latency_s=0.01)
    run_with(writing(store, run, model), proposals=11)
    assert store.progress(run.id).proposals == len(model.asked) == 11
