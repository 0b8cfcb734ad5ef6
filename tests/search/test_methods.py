"""Invariants of methods, the arms of a portfolio:

1. Each asks its own policy and only its own operators; tickets and arms say whose they are.
2. What is asked before all others belongs to no method.
3. A bandit moves to the method whose children lead, not to the one with the weakest parents.
4. A run without methods asks as it always did.
"""

import math
from collections import Counter
from functools import partial

import pytest

from archives import TopK
from evolve.core.errors import UsageError
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.randomness import stream
from evolve.search.methods import Method, shared_out
from evolve.search.schedule import Bandit, Choice, Scheduled, Shares
from evolve.search.selection import Greedy
from evolve.store import Arm
from evolve.testing.synthetic import SyntheticEvaluator
from operators import Seed
from tests.search.conftest import make_search


class Worst:
    """The opposite of greedy."""

    def select(self, population, count, rng):
        return tuple(population[::-1][:count])


class Block:
    """A new program with a larger or smaller block than its parent's."""

    parents = 1

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def propose(self, context):
        (parent,) = context.parents
        source = context.facts.source(parent.program)
        size = int(source.partition("\nBLOCK = ")[2].partition("\n")[0])
        new = min(max(size * self.factor // 4, 16), 256)
        source = source.replace(f"\nBLOCK = {size}\n", f"\nBLOCK = {new}\n")
        source += f"CHILD_{context.sequence} = 1\n"
        return Proposal(program=Program(source), parents=(parent.program,))


def parts(**weights: float) -> dict[str, Scheduled]:
    return {
        "seed": Scheduled(operator=Seed(), weight=math.inf),
        "larger": Scheduled(operator=Block(8)),
        "smaller": Scheduled(operator=Block(2)),
    }


METHODS = {
    "up": Method(selection=Greedy(), weights={"larger": 1.0}),
    "down": Method(selection=Worst(), weights={"smaller": 1.0}),
}


def portfolio(store, run, **changes):
    settings = {"operators": parts(), "methods": METHODS, "archive": TopK(capacity=12)}
    return make_search(store, run, **settings | changes)


def take(search, steps: int) -> list:
    tickets = []
    for _ in range(steps):
        ticket = search.ask()
        tickets.append(ticket)
        search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))
    return tickets


def test_every_method_has_its_own_policy_and_operators(store, run):
    search = portfolio(store, run)
    first, *others = take(search, 30)
    assert (first.operator, first.method) == ("seed", "")
    assert {(t.method, t.operator) for t in others} == {("up", "larger"), ("down", "smaller")}
    arms = {(arm.method, arm.operator): arm.told for arm in store.arms(run.id)}
    assert arms == Counter((t.method, t.operator) for t in (first, *others))
    assert [step.method for step in store.steps(run.id)] == [t.method for t in (first, *others)]


def test_a_method_selects_with_its_own_policy(store, run):
    search = portfolio(store, run)
    take(search, 3)
    for _ in range(12):
        best, worst = search.population[0].program, search.population[-1].program
        (ticket,) = take(search, 1)
        assert ticket.parents == ((best,) if ticket.method == "up" else (worst,))


def test_a_restart_asks_the_same_methods(store, run):
    lived = [(t.method, t.operator, t.parents) for t in take(portfolio(store, run), 15)]
    other = store.create_run(name="other", task=run.task, config=dict(run.config), seed=run.seed)
    restarted = [take(portfolio(store, other), 1)[0] for _ in range(15)]
    assert [(t.method, t.operator, t.parents) for t in restarted] == lived


def test_weights_of_methods_are_shares_of_all_asks():
    methods = {
        "a": Method(selection=Greedy(), weights={"larger": 1.0, "smaller": 3.0}, weight=3.0),
        "b": Method(selection=Greedy(), weights={"larger": 5.0}, weight=1.0),
    }
    found = shared_out(methods, parts(), Greedy())
    weights = {
        (method, name): each.weight
        for method, (_, operators) in found.items()
        for name, each in operators.items()
    }
    assert weights == {
        ("", "seed"): math.inf,
        ("a", "larger"): 0.75,
        ("a", "smaller"): 2.25,
        ("b", "larger"): 1.0,
    }


def test_an_operator_that_is_not_configured_is_refused_by_its_name(store, run):
    methods = METHODS | {"third": Method(selection=Greedy(), weights={"edit": 1.0})}
    with pytest.raises(UsageError, match=r"methods.third.operators names edit"):
        portfolio(store, run, methods=methods)


def test_an_operator_that_no_method_names_is_refused(store, run):
    with pytest.raises(UsageError, match=r"operators.smaller is in no method"):
        portfolio(store, run, methods={"up": METHODS["up"]})


@pytest.mark.parametrize("wrong", [{"weight": 0.0}, {"weights": {"larger": -1.0}}])
def test_a_weight_that_is_none_is_refused(wrong):
    with pytest.raises(UsageError, match="above 0"):
        Method(**{"selection": Greedy(), "weights": {"larger": 1.0}} | wrong)


def arm(method: str, operator: str, **fields) -> Arm:
    nothing = {"told": 10, "tokens": 0, "usd": 1.0, "unpriced_tokens": 0}
    nothing |= {"device_time_s": 0.0, "gain": 0.0}
    return Arm(method=method, operator=operator, model="", **nothing | fields)


OPTIONS = [
    Choice(method="a", operator="edit"),
    Choice(method="a", operator="tune"),
    Choice(method="b", operator="edit"),
]


def firsts(schedule, arms, count: int = 400) -> Counter:
    orders = (
        schedule.order(OPTIONS, lambda: arms, partial(lambda name, n: stream(1, name, n), n=n))
        for n in range(count)
    )
    return Counter((order[0].method, order[0].operator) for order in orders)


def test_the_bandit_moves_to_the_method_whose_children_lead():
    arms = [arm("a", "edit", gain=9.0), arm("b", "edit", gain=0.1, lead=2.0)]
    found = firsts(Bandit(explore=0.0), arms)
    assert found["b", "edit"] > 380


def test_within_a_method_the_bandit_moves_to_the_operator_that_improves_parents():
    arms = [arm("a", "edit", lead=2.0), arm("a", "tune", gain=3.0, lead=2.0)]
    found = firsts(Bandit(explore=0.0), arms)
    assert found["a", "tune"] > 10 * found["a", "edit"]


def test_without_evidence_methods_share_by_weight():
    for schedule in (Shares(), Bandit(explore=0.0)):
        assert 70 < firsts(schedule, [])["b", "edit"] < 180  # one choice of three, of equal weight


def test_one_operator_may_serve_several_methods_and_is_counted_apart(store, run):
    methods = {
        "up": Method(selection=Greedy(), weights={"larger": 1.0, "smaller": 1.0}),
        "down": Method(selection=Worst(), weights={"larger": 1.0}),
    }
    take(portfolio(store, run, methods=methods, schedule=Bandit()), 40)
    arms = {(arm.method, arm.operator) for arm in store.arms(run.id)}
    assert {("up", "larger"), ("down", "larger"), ("up", "smaller"), ("", "seed")} == arms
