"""Budgets hold with calls under way: in USD, tokens, evaluations and proposals."""

from dataclasses import replace

import pytest

from evolve.core.model import Reservation
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
    assert "of 0.50 USD used, counting the next call with up to 1,000 tokens" in outcome.reason
    assert all(now.usd + now.usd_reserved <= 0.5 + 1e-9 for now in paid)
    spent = store.progress(run.id).usd
    assert 0.5 - WORST.usd < spent <= 0.5


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
