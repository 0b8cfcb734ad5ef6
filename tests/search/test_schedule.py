"""Invariants of schedules:

1. An operator that asks models is a choice per model, and its weight is shared out among them.
2. The bandit prefers what brings more measured improvement for its cost, and never stops trying.
3. Cost is dollars where the run is short of money, elsewhere asks and the judge's time.
4. Both are pure: the same facts and generators give the same order.
"""

from collections import Counter
from functools import partial

import pytest

from evolve.core.errors import UsageError
from evolve.core.model import ModelCard
from evolve.core.randomness import stream
from evolve.search.schedule import Bandit, Choice, Scheduled, Shares, choices
from evolve.search.termination import (
    Limit,
)
from evolve.store import Arm
from evolve.testing.synthetic import SyntheticEvaluator
from operators import Tune
from tests.search.conftest import make_search, variants
from tests.search.models import ScriptedModel, Writer, towards_the_optimum, writer


def draws(sequence: int):
    return partial(lambda name, seq: stream(1, name, seq), seq=sequence)


def another(store, run):
    """A second run of the same task."""
    return store.create_run(name="other", task=run.task, config=run.config, seed=run.seed)


def firsts(schedule, options, arms=(), count: int = 400) -> Counter:
    orders = (schedule.order(options, lambda: arms, draws(number)) for number in range(count))
    return Counter((order[0].operator, order[0].model) for order in orders)


def arm(operator: str, model: str = "", **fields) -> Arm:
    nothing = {"told": 10, "tokens": 0, "usd": 0.0, "unpriced_tokens": 0}
    nothing |= {"device_time_s": 0.0, "gain": 0.0}
    return Arm(operator=operator, model=model, **nothing | fields)


def test_an_operator_is_one_choice_per_model_with_its_weight_shared_out():
    operators = {
        "write": Scheduled(operator=Writer(), weight=2.0),
        "tune": Scheduled(operator=Tune(), weight=1.0),
    }
    cards = [
        ModelCard(name="fast", weight=3.0),
        ModelCard(name="strong"),
        ModelCard(name="role", weight=0),
    ]
    assert choices(operators, cards) == [
        Choice(operator="write", model="fast", weight=1.5),
        Choice(operator="write", model="strong", weight=0.5),
        Choice(operator="tune", weight=1.0),
    ]
    assert [each.operator for each in choices(operators, [])] == ["tune"]


def test_a_weight_is_a_share_of_steps_also_of_an_operator_with_several_samples():
    """Of GEAK's asks one in four was to be a repair; it was one step in 18."""
    operators = {
        "many": Scheduled(operator=Writer(samples=8), weight=3.0),
        "one": Scheduled(operator=Writer(), weight=1.0),
    }
    found = firsts(Shares(), choices(operators, [ModelCard(name="model")]), count=2000)
    steps = {name: count * (8 if name == "many" else 1) for (name, _), count in found.items()}
    assert steps["one"] / sum(steps.values()) == pytest.approx(0.25, abs=0.03)


def test_shares_are_met_over_operators_and_models():
    options = [
        Choice(operator="write", model="fast", weight=1.5),
        Choice(operator="write", model="strong", weight=0.5),
        Choice(operator="tune", weight=2.0),
    ]
    seen = firsts(Shares(), options, count=4000)
    assert 0.46 < seen["tune", ""] / 4000 < 0.54
    assert 0.34 < seen["write", "fast"] / 4000 < 0.41


OPTIONS = [
    Choice(operator="write", model="cheap", weight=1.0),
    Choice(operator="write", model="dear", weight=1.0),
    Choice(operator="tune", weight=1.0),
]


def test_the_bandit_begins_with_the_weights_and_moves_to_what_pays():
    even = firsts(Bandit(explore=0.0), OPTIONS)
    assert all(80 < even[choice.operator, choice.model] < 190 for choice in OPTIONS)
    arms = [
        arm("write", "cheap", usd=2.0, gain=1.0),
        arm("write", "dear", usd=20.0, gain=1.0),
        arm("tune", device_time_s=3600.0, gain=0.0),
    ]
    learnt = firsts(Bandit(explore=0.0, limit=Limit("usd", 25)), OPTIONS, arms)
    assert learnt["write", "cheap"] > 380


LIMITS = {
    "evaluations": (Limit("evaluations", 40), "write"),
    "proposals": (Limit("proposals", 40), "write"),
    "device time": (Limit("device_time", 60), "write"),
    "dollars": (Limit("usd", 0.3), "tune"),
    "tokens": (Limit("tokens", 30_000), "tune"),
    "dollars first": (
        Limit("evaluations", 400) | Limit("wall_time", 3600) | Limit("usd", 0.3),
        "tune",
    ),
    "dollars last": (
        Limit("evaluations", 40) | Limit("wall_time", 3600) | Limit("usd", 20),
        "write",
    ),
    "only a target": (Limit("target_speedup", 2.0), "write"),
}


@pytest.mark.parametrize("name", LIMITS)
def test_cost_is_counted_in_what_the_run_is_short_of(name: str):
    """A call costs a hundred times as much as tuning, and brings twice as much."""
    limit, preferred = LIMITS[name]
    arms = [
        arm("write", "cheap", usd=0.2, tokens=20_000, device_time_s=10.0, gain=1.6),
        arm("tune", device_time_s=10.0, gain=0.8),
    ]
    bandit = Bandit(explore=0.0, usd_per_device_hour=0.72, limit=limit)
    seen = firsts(bandit, [OPTIONS[0], OPTIONS[2]], arms)
    assert max(seen, key=seen.__getitem__)[0] == preferred


def test_a_reply_without_a_program_costs_an_ask_and_a_screen_little_time():
    failing = arm("write", "cheap", told=20)
    slow = arm("write", "dear", told=20, device_time_s=20.0, gain=0.2)
    screens = arm("tune", told=20, device_time_s=2.0, gain=0.2)
    among_two = firsts(Bandit(explore=0.0), OPTIONS[:2], [failing, slow])
    assert among_two["write", "cheap"] < 100
    among_two = firsts(Bandit(explore=0.0), OPTIONS[1:], [slow, screens])
    assert among_two["tune", ""] > 300


def test_the_bandit_goes_on_trying_what_has_brought_nothing_yet():
    arms = [arm("write", "cheap", usd=0.1, gain=0.0), arm("write", "dear", usd=0.1, gain=0.1)]
    learnt = firsts(Bandit(), OPTIONS, arms)
    assert learnt["write", "cheap"] > 20


@pytest.mark.parametrize("usd", [2e-4, 0.02, 2.0])
def test_the_bandit_learns_as_fast_whatever_an_ask_costs(usd: float):
    arms = [
        arm("write", "cheap", usd=10 * usd, gain=0.4),
        arm("write", "dear", usd=10 * usd),
        arm("tune", usd=10 * usd),
    ]
    bandit = Bandit(explore=0.0, limit=Limit("usd", 100))
    assert firsts(bandit, OPTIONS, arms)["write", "cheap"] > 320


def test_an_unpriced_model_is_compared_by_its_tokens():
    arms = [
        arm("write", "cheap", tokens=1_000_000, unpriced_tokens=1_000_000, gain=1.0),
        arm("write", "dear", tokens=50_000_000, unpriced_tokens=50_000_000, gain=1.0),
    ]
    short = Bandit(explore=0.0, usd_per_million_tokens=1.0, limit=Limit("tokens", 60_000_000))
    learnt = firsts(short, OPTIONS[:2], arms)
    assert learnt["write", "cheap"] > 380


def test_an_infinite_weight_still_goes_first():
    seeds = Choice(operator="seed", weight=float("inf"))
    assert firsts(Bandit(), [*OPTIONS, seeds])["seed", ""] == 400


def test_the_same_facts_give_the_same_order():
    arms = [arm("write", "cheap", usd=1.0, gain=0.4)]
    for schedule in (Shares(), Bandit()):
        one = [schedule.order(OPTIONS, lambda: arms, draws(n)) for n in range(30)]
        two = [schedule.order(OPTIONS[::-1], lambda: arms, draws(n)) for n in range(30)]
        assert one == two


@pytest.mark.parametrize("wrong", [{"step": 0}, {"explore": 1.5}, {"prior_asks": -1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match=f"schedule.{next(iter(wrong))}"):
        Bandit(**wrong)


def test_a_verdict_that_was_known_before_says_nothing_of_its_arm(store, run):
    judge = SyntheticEvaluator()
    first, second = make_search(store, run), make_search(store, another(store, run))
    for search in (first, second):
        ticket = search.ask()
        request = search.request(ticket)
        search.tell(ticket, search.known(request, judge) or judge.judge(request))
    (asked,), (known,) = store.arms(first.run.id), store.arms(second.run.id)
    assert (asked.told, known.told) == (1, 0)
    assert known.device_time_s == known.gain == 0.0


def test_arms_are_what_told_tickets_cost_and_brought(store, run):
    search = make_search(
        store, run, operators=variants() | writer(), model=ScriptedModel(towards_the_optimum)
    )
    judge = SyntheticEvaluator()
    for _ in range(12):
        ticket = search.ask()
        if ticket.request is not None:
            call = store.begin_call(ticket, search.model.reserve(ticket.request))
            ticket = search.replied(call, towards_the_optimum(ticket.request, ticket.sequence))
        if ticket.proposal is not None:
            search.tell(ticket, judge.judge(search.request(ticket)))
    arms = {each.operator: each for each in store.arms(run.id)}
    assert arms["writer"].model == "scripted"
    assert arms["writer"].told + arms["variants"].told == store.progress(run.id).proposals
    assert arms["writer"].usd == pytest.approx(store.progress(run.id).usd)
    assert arms["writer"].gain > 0
    assert arms["variants"].device_time_s > 0
    assert arms["variants"].usd == 0.0
