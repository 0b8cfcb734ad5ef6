"""Invariants of the engine:

1. Everything asked is stored before it is evaluated, and told at most once.
2. The same run asks the same questions again after a restart.
3. Only strict, fully timed programs reach the archive.
"""

from dataclasses import replace
from functools import partial

import pytest

from archives import TopK
from evolve.core.compiled import Compiled
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Ratio
from evolve.core.program import Program
from evolve.core.protocols import Declined, Failed, Proposal
from evolve.core.randomness import stream
from evolve.search.engine import Search
from evolve.search.schedule import Choice, Scheduled, Shares
from evolve.search.selection import Greedy
from evolve.store import TicketState
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.search.conftest import make_search


def evaluate(search: Search, ticket, **settings):
    return SyntheticEvaluator(**settings).judge(search.request(ticket))


class Scripted:
    """An operator that proposes a fixed list, one per ask."""

    parents = 0

    def __init__(self, name, *outcomes):
        self.name, self.outcomes = name, outcomes
        if name.startswith("seed"):
            self.is_seed = True

    def propose(self, context):
        done = context.facts.proposals(self.name)
        return self.outcomes[done] if done < len(self.outcomes) else Declined("done")


def draws(seed, name):
    return stream(seed, name, 0)


def scripted(*outcomes):
    return {"scripted": Scheduled(operator=Scripted("scripted", *outcomes))}


def test_seeds_that_go_first_take_turns_before_all_others(store, run):
    def proposals(name):
        return [Proposal(program=Program(f"{SEED_SOURCE}{name}_{n} = 1\n")) for n in range(3)]

    operators = {
        name: Scheduled(operator=Scripted(name, *proposals(name)[:count]), weight=weight)
        for name, count, weight in (
            ("again", 1, float("inf")),
            ("seed_a", 3, float("inf")),
            ("seed_b", 2, float("inf")),
            ("tune", 1, 1.0),
        )
    }
    search = make_search(store, run, operators=operators)
    asked = [search.ask().operator for _ in range(3)]  # under way at once
    search.tell(ticket := search.ask(), evaluate(search, ticket))
    assert [*asked, ticket.operator] == ["seed_a", "seed_b", "seed_a", "seed_b"]
    assert [search.ask().operator for _ in range(3)] == ["seed_a", "again", "tune"]


def test_the_first_ask_is_the_seed_of_the_task(store, run):
    ticket = make_search(store, run).ask()
    assert ticket.operator == "seed"
    assert ticket.proposal.program.source == SEED_SOURCE
    assert ticket.state is TicketState.PROPOSED


def test_a_strict_program_enters_the_archive_and_leads(store, run):
    search = make_search(store, run)
    ticket = search.ask()
    offer = search.tell(ticket, evaluate(search, ticket))
    assert offer
    assert search.leader.program == ticket.proposal.program.digest
    assert store.slots(run.id) == search.archive.slots()


def test_telling_twice_changes_nothing(store, run):
    search = make_search(store, run)
    ticket = search.ask()
    verdict = evaluate(search, ticket)
    search.tell(ticket, verdict)
    before = search.progress
    search.tell(ticket, verdict)
    assert search.progress == before


def test_a_wrong_program_is_kept_as_a_fact_and_not_in_the_archive(store, run):
    search = make_search(store, run)
    ticket = search.offer("class ModelNew:\n    BLOCK = 1\n")
    verdict = evaluate(search, ticket, failures={Status.WRONG_VALUE: 1.0})
    assert verdict.status is Status.WRONG_VALUE
    assert search.tell(ticket, verdict) is None
    assert search.leader is None
    assert store.step(run.id, ticket.sequence).status is Status.WRONG_VALUE


def test_a_screened_program_is_not_in_the_archive(store, run):
    program = Program(SEED_SOURCE)
    search = make_search(
        store, run, operators=scripted(Proposal(program=program, fidelity=Fidelity.SCREEN))
    )
    ticket = search.ask()
    search.tell(ticket, evaluate(search, ticket))
    assert search.leader is None
    assert search.progress.screens == 1
    assert search.progress.evaluations == 0


def test_a_duplicate_is_recorded_and_never_evaluated(store, run):
    proposal = Proposal(program=Program(SEED_SOURCE))
    search = make_search(store, run, operators=scripted(proposal, proposal))
    first = search.ask()
    assert search.ask().state is TicketState.TOLD
    assert search.ask() is None
    assert [step.failure != "" for step in store.steps(run.id)] == [False, True]
    assert "duplicate" in store.step(run.id, 1).failure
    assert first.sequence == 0


def test_a_program_that_differs_in_comments_only_is_a_duplicate(store, run):
    commented = SEED_SOURCE + "\n# the same\n"
    sources = (SEED_SOURCE, commented)
    search = make_search(
        store, run, operators=scripted(*[Proposal(program=Program(text)) for text in sources])
    )
    search.ask()
    assert "comments" in search.ask().failure


def test_a_screen_may_be_followed_by_the_full_evaluation_of_the_same_instance(store, run):
    program = Program(SEED_SOURCE)
    search = make_search(
        store,
        run,
        operators=scripted(
            Proposal(program=program, fidelity=Fidelity.SCREEN),
            Proposal(program=program, fidelity=Fidelity.SEARCH),
        ),
    )
    fidelities = [search.ask().proposal.fidelity for _ in range(2)]
    assert fidelities == [Fidelity.SCREEN, Fidelity.SEARCH]


def test_a_failed_proposal_is_recorded_and_the_next_one_is_asked(store, run):
    search = make_search(
        store,
        run,
        operators=scripted(Failed("no code in it"), Proposal(program=Program(SEED_SOURCE))),
    )
    assert search.ask().failure == "no code in it"
    assert search.ask().state is TicketState.PROPOSED


def test_telling_another_verdict_later_changes_nothing(store, run):
    search = make_search(store, run)
    ticket = search.ask()
    search.tell(ticket, evaluate(search, ticket))
    before = (search.progress, search.archive.slots())
    other = replace(evaluate(search, ticket), ratios={"eager": Ratio(9.0, 8.9, 9.1)})
    assert search.tell(ticket, other) is None
    assert (search.progress, search.archive.slots()) == before
    assert store.slots(run.id) == search.archive.slots()


def test_a_restarted_engine_asks_what_the_first_one_would_have_asked(store, run, tmp_path):
    steps = 12
    first = make_search(store, run)
    for _ in range(steps):
        ticket = first.ask()
        first.tell(ticket, evaluate(first, ticket))
    other = store.create_run(name="other", task=run.task, config=dict(run.config), seed=run.seed)
    for _ in range(steps):
        again = make_search(store, other)  # a new engine for every single step
        ticket = again.ask()
        again.tell(ticket, evaluate(again, ticket))

    def asked(of):
        return [(s.operator, s.program, dict(s.assignment), s.fidelity) for s in store.steps(of.id)]

    assert asked(other) == asked(run)


def test_another_seed_asks_other_questions(store, run):
    other = store.create_run(name="other", task=run.task, config=dict(run.config), seed=8)
    asked = []
    for which in (run, other):
        search = make_search(store, which)
        for _ in range(8):
            ticket = search.ask()
            search.tell(ticket, evaluate(search, ticket))
        asked.append([dict(step.assignment) for step in store.steps(which.id)])
    assert asked[0] != asked[1]


def test_the_policy_is_asked_first_and_others_follow_when_its_parent_is_declined(store, run):
    class OnlyTheSecond:
        parents = 1

        def propose(self, context):
            if context.parents and context.parents[0].program == wanted:
                return Proposal(program=Program(SEED_SOURCE + "CHILD = 1\n"))
            return Declined("not this one")

    sources = [SEED_SOURCE, SEED_SOURCE + "OTHER = 1\n"]
    search = make_search(
        store, run, selection=Greedy(), operators={"pick": Scheduled(operator=OnlyTheSecond())}
    )
    for source in sources:
        ticket = search.offer(source)
        search.tell(ticket, evaluate(search, ticket))
    wanted = min(search.archive.slots().values(), key=lambda e: e.fitness.value).program
    assert search.ask() is not None


def test_a_search_without_operators_is_refused(store, run):
    with pytest.raises(UsageError, match="operators"):
        Search(store=store, run=run, archive=TopK(capacity=2), selection=Greedy(), operators={})


def order(weights, seed):
    choices = [Choice(operator=name, weight=weight) for name, weight in weights.items()]
    return [c.operator for c in Shares().order(choices, list, partial(draws, seed))]


def test_weights_are_shares_and_an_infinite_weight_goes_first():
    weights = {"first": float("inf"), "w1": 1.0, "w3": 3.0}
    orders = [order(weights, seed) for seed in range(2000)]
    assert all(o[0] == "first" for o in orders)
    share = sum(o[1] == "w3" for o in orders) / len(orders)
    assert 0.71 < share < 0.79


def test_the_order_of_operators_in_the_configuration_does_not_matter():
    weights = {f"w{w}": float(w) for w in (1, 2, 3)}
    backwards = dict(reversed(weights.items()))
    for seed in range(50):
        assert order(weights, seed) == order(backwards, seed)


def test_a_weight_of_zero_names_the_remedy():
    with pytest.raises(UsageError, match="null"):
        Scheduled(operator=Scripted("x"), weight=0.0)


def test_the_ranking_is_the_archive_in_order_after_every_step(store, run):
    search = make_search(store, run, archive=TopK(capacity=3))
    for _ in range(25):
        ticket = search.ask()
        search.tell(ticket, evaluate(search, ticket))
        held = sorted(search.archive.slots().values(), key=lambda elite: -elite.fitness.value)
        assert search.leader == held[0]
        assert {elite.program for elite in search.contenders()} <= {e.program for e in held}
    assert make_search(store, run, archive=TopK(capacity=3)).leader == search.leader


class Watching:
    """An operator that keeps the facts of the device in its contexts."""

    parents = 0

    def __init__(self):
        self.devices = []

    def propose(self, context):
        self.devices.append(dict(context.device))
        return Proposal(program=Program(f"{SEED_SOURCE}N = {context.sequence}\n"))


def test_what_compiled_references_say_of_the_device_holds_before_and_after_a_verdict(store):
    said = {"multiprocessors": "132", "eager_convolutions": "ieee"}
    compiled = Compiled("default", "2.13", (), device=said)
    task = replace(synthetic_task(), compiled=(compiled,))
    run = store.create_run(name="compiled", task=task, config={"baseline": "eager"}, seed=7)
    watching = Watching()
    search = make_search(store, run, operators={"watching": Scheduled(operator=watching)})
    ticket = search.ask()
    judged = evaluate(search, ticket)
    told = {"eager_convolutions": "tf32", "driver": "580"}
    search.tell(ticket, replace(judged, environment=told))
    search.ask()
    before, after = watching.devices
    assert before.items() >= said.items()
    assert after.items() >= {**told, **said}.items()
