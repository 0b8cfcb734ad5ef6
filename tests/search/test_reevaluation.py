"""Invariants of evaluating again:

1. Fitness is the pooled estimate of an instance, and a program stands by its best one.
2. A lucky measurement does not keep the lead, a refuted program does not keep its place.
3. What is evaluated again is no duplicate, is really judged, and can be replayed.
4. The archive that the events make is the stored one, in any kind of archive.
5. What an arm has brought is what later measurements leave of it.
"""

import asyncio
import math
import random
from dataclasses import replace

import pytest

from archives import Islands, MapElites, Novelty, Pareto, Priority, TopK, Tree
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.measurement import Interval, Ratio, pooled
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.core.source.sketch import sketch
from evolve.evaluation.replay import ReplayEvaluator
from evolve.search.archive_replay import project, submit
from evolve.search.engine import Search
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.termination import from_config
from evolve.store import Store, Ticket, TicketState
from evolve.store.champion import champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from operators import Remeasure
from tests.search.conftest import make_search, operators, run_to_end, variants

A = SEED_SOURCE + "\nNAME = 'a'\n"
B = SEED_SOURCE + "\nTHIS = 'other'\n"


def verdict(search: Search, ticket: Ticket, speedup: float, spread: float = 0.02) -> Evaluation:
    judged = SyntheticEvaluator().judge(search.request(ticket))
    ratio = Ratio(speedup, speedup * math.exp(-spread), speedup * math.exp(spread))
    return replace(judged, ratios={"eager": ratio})


def wrong(search: Search, ticket: Ticket, status: Status = Status.WRONG_VALUE) -> Evaluation:
    judged = SyntheticEvaluator().judge(search.request(ticket))
    return replace(judged, status=status, ratios={}, cases=(), samples={}, custom=None)


class Listed:
    """Proposes what it is given, in order."""

    parents = 0

    def __init__(self, *proposals: Proposal) -> None:
        self.proposals = proposals

    def propose(self, context):
        return self.proposals[context.facts.proposals("listed")]


def listed(store, run, *proposals, **changes) -> Search:
    operators = {"listed": Scheduled(operator=Listed(*proposals))}
    return make_search(store, run, operators=operators, **changes)


def instance(source: str, block: int = 16, *, is_reevaluation: bool = False) -> Proposal:
    return Proposal(
        program=Program(source), assignment={"BLOCK": block}, is_reevaluation=is_reevaluation
    )


def put(search: Search, speedup: float | None, spread: float = 0.02) -> Ticket:
    """The next ticket of a search, told this speedup; None: that it is wrong."""
    ticket = search.ask()
    assert ticket is not None
    assert ticket.state is TicketState.PROPOSED
    found = verdict(search, ticket, speedup, spread) if speedup else wrong(search, ticket)
    search.tell(ticket, found)
    return ticket


def digest(source: str) -> str:
    return Program(source).digest


def value(search: Search, source: str) -> float:
    return math.exp(search.population.elite(digest(source)).fitness.value)


def test_a_lucky_first_measurement_loses_the_lead(store, run):
    search = listed(store, run, instance(A), instance(B), instance(A, is_reevaluation=True))
    put(search, 2.0)
    put(search, 1.9)
    assert search.leader.program == digest(A)
    put(search, 1.5)
    assert search.leader.program == digest(B)
    lowered = search.population.elite(digest(A))
    assert lowered.evaluations == 2
    assert value(search, A) == pytest.approx(math.sqrt(2.0 * 1.5))
    assert store.slots(run.id) == search.archive.slots()


def test_pooling_weighs_by_variance_and_a_single_estimate_stays_as_it_is():
    single = Interval(0.3, 0.1, 0.4)
    assert pooled([single]) is single
    narrow, wide = Interval(0.0, -0.01, 0.01), Interval(0.02, -0.02, 0.06)
    both = pooled([narrow, wide])
    assert both.value == pytest.approx(0.02 * 0.01**2 / (0.01**2 + 0.04**2))
    assert both.high - both.low < 0.02


def test_the_share_of_speed_of_light_is_pooled_as_times_are(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    for share in (0.4, 0.9):
        ticket = search.ask()
        found = verdict(search, ticket, 2.0)
        known = {**found.descriptors, "speed_of_light": share}
        search.tell(ticket, replace(found, descriptors=known))
    assert search.progress.speed_of_light == pytest.approx(0.6)


def test_the_worst_error_and_the_most_memory_of_all_evaluations_count(store, run):
    search = listed(store, run, *(instance(A, is_reevaluation=bool(number)) for number in range(3)))
    for found in ({}, {"error": 0.4, "memory_bytes": 5e6}, {"error": 0.3, "memory_bytes": 9e6}):
        ticket = search.ask()
        judged = verdict(search, ticket, 2.0)
        known = {**judged.descriptors, **found}
        search.tell(ticket, replace(judged, descriptors=known))
        assert ("error" in search.leader.descriptors) == bool(found)
    assert search.leader.descriptors["error"] == 0.4
    assert search.leader.descriptors["memory_bytes"] == 9e6


def test_estimates_that_contradict_each_other_make_the_interval_wider():
    agree = pooled([Interval(0.0, -0.01, 0.01), Interval(0.005, -0.005, 0.015)])
    differ = pooled([Interval(0.0, -0.01, 0.01), Interval(0.5, 0.49, 0.51)])
    assert agree.high - agree.low == pytest.approx(0.02 / math.sqrt(2))
    assert differ.low < 0.01
    assert differ.high > 0.49


def test_an_instance_that_is_lowered_leaves_the_program_to_its_other_one(store, run):
    search = listed(
        store,
        run,
        instance(A, 32),
        instance(A, 64),
        instance(A, 32, is_reevaluation=True),
        instance(B),
    )
    put(search, 2.0)
    put(search, 1.8)  # a worse instance changes nothing
    assert search.leader.assignment == {"BLOCK": 32}
    put(search, 1.4)
    assert search.leader.assignment == {"BLOCK": 64}
    assert value(search, A) == pytest.approx(1.8)
    assert search.leader.evaluations == 1
    assert [offer.status.name for _, offer in store.offers(run.id)] == [
        "NEW",
        "NOT_ADDED",
        "IMPROVED",
    ]


def test_what_a_later_evaluation_refutes_leaves_the_archive(store, run):
    search = listed(store, run, instance(A), instance(B), instance(A, is_reevaluation=True))
    put(search, 2.0)
    put(search, 1.5)
    put(search, None)
    assert [elite.program for elite in search.population] == [digest(B)]
    assert search.archive.slots() == store.slots(run.id)
    assert [elite.evaluations for elite, _ in store.offers(run.id)] == [1, 1, 0]
    assert [elite.program for elite in make_search(store, run).population] == [digest(B)]


def test_a_refuted_instance_leaves_the_program_to_its_other_one(store, run):
    search = listed(
        store, run, instance(A, 32), instance(A, 64), instance(A, 32, is_reevaluation=True)
    )
    put(search, 2.0)
    put(search, 1.5)
    put(search, None)
    assert search.leader.assignment == {"BLOCK": 64}
    assert search.archive.slots() == store.slots(run.id)


@pytest.mark.parametrize("status", [Status.INFRA, Status.TIMING_UNBOUNDED])
def test_what_says_nothing_of_the_program_changes_nothing(store, run, status):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 2.0)
    before = search.leader
    ticket = search.ask()
    assert search.tell(ticket, wrong(search, ticket, status)) is None
    assert search.leader == before


def test_a_wrong_instance_of_a_good_program_changes_nothing(store, run):
    search = listed(store, run, instance(A, 32), instance(A, 64))
    put(search, 2.0)
    before = search.leader
    put(search, None)
    assert search.leader == before
    assert len(list(store.offers(run.id))) == 1


def test_a_tuned_program_keeps_the_parents_that_it_was_made_from(store, run):
    class Tuned(Listed):
        parents = 1

        def propose(self, context):
            return replace(super().propose(context), parents=(context.parents[0].program,))

    search = listed(store, run, instance(A))
    put(search, 1.5)
    child, tuned = instance(B), instance(B, 64)
    search = make_search(
        store, run, operators={"listed": Scheduled(operator=Tuned(instance(A), child, tuned))}
    )
    put(search, 2.0)
    put(search, 2.5)
    assert search.leader.assignment == {"BLOCK": 64}
    assert search.leader.parents == (digest(A),)


def test_what_is_evaluated_again_is_never_answered_from_the_store(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 2.0)
    request = search.request(search.ask())
    assert request.repeat == 1
    assert search.known(request, SyntheticEvaluator()) is None


def test_a_proposal_that_is_to_be_made_again_survives_a_restart(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 2.0)
    asked = search.ask()
    (waiting,) = make_search(store, run).open_tickets()
    assert waiting == asked
    assert waiting.proposal.is_reevaluation


def test_an_unverified_winner_is_shown_with_all_that_was_measured_of_it(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 2.0)
    put(search, 1.0)
    assert champion(store, run).ratio.value == pytest.approx(math.sqrt(2.0))


def brought(store: Store, run, operator: str) -> tuple[float, float]:
    (arm,) = (arm for arm in store.arms(run.id) if arm.operator == operator)
    return arm.gain, arm.lead


def again(search: Search, elite, speedup: float | None, fidelity=Fidelity.SEARCH) -> None:
    ticket = search.reevaluate(elite, operator="again", fidelity=fidelity)
    found = verdict(search, ticket, speedup) if speedup else wrong(search, ticket)
    search.tell(ticket, found)


@pytest.mark.parametrize("later", [1.9, 2.1])
def test_what_is_measured_again_corrects_what_its_maker_brought(store, run, later):
    search = listed(store, run, instance(A), instance(B))
    put(search, 1.3)
    put(search, 2.0)
    lucky, before = search.leader, brought(store, run, "listed")

    def expected(fitness: Interval) -> float:
        """What the first brought over the baseline, and the second over the first."""
        spread = math.hypot(fitness.value - fitness.low, 0.02)
        return math.log(1.3) - 0.02 + fitness.value - math.log(1.3) - spread

    assert before == pytest.approx([expected(lucky.fitness)] * 2)
    again(search, lucky, later)
    known = search.population.elite(lucky.program).fitness
    after = brought(store, run, "listed")
    assert after == pytest.approx([expected(known)] * 2)
    assert (after > before) == (later > 2.0)
    assert brought(store, run, "again") == (0.0, 0.0)


@pytest.mark.parametrize("fidelity", [Fidelity.SEARCH, Fidelity.VERIFY])
def test_what_is_refuted_has_brought_nothing(store, run, fidelity):
    search = listed(store, run, instance(A))
    put(search, 2.0)
    assert brought(store, run, "listed")[1] > 0.6
    again(search, search.leader, None, fidelity)
    assert brought(store, run, "listed") == pytest.approx((0.0, 0.0))


def test_a_verification_says_what_a_child_has_really_brought(store, run):
    search = listed(store, run, instance(A))
    put(search, 3.0)
    again(search, search.leader, 1.5, Fidelity.VERIFY)
    expected = math.log(1.5) - 0.02
    assert brought(store, run, "listed") == pytest.approx((expected, expected))


def test_what_says_nothing_of_the_program_leaves_its_makers_gain(store, run):
    search = listed(store, run, instance(A))
    put(search, 2.0)
    before = brought(store, run, "listed")
    ticket = search.reevaluate(search.leader, operator="again", fidelity=Fidelity.SEARCH)
    search.tell(ticket, wrong(search, ticket, Status.INFRA))
    assert brought(store, run, "listed") == before


ARCHIVES = {
    "topk": lambda: TopK(capacity=6),
    "map_elites": lambda: MapElites(axes={"block": [1, 32, 128, 512], "pipelining": ["deep"]}),
    "islands": lambda: Islands(of=TopK, capacity=24, patience=10),
    "priority": Priority,
    "tree": Tree,
    "pareto": Pareto,
    "novelty": lambda: Novelty(of=TopK, capacity=6),
}


class Unsteady(SyntheticEvaluator):
    """Much noise, and now and then what was right is wrong when it is measured again."""

    def judge(self, request):
        found = super().judge(request)
        draw = random.Random(f"{request.instance} {request.repeat}").random()
        if request.repeat and request.fidelity is Fidelity.SEARCH and draw < 0.3:
            return replace(found, status=Status.WRONG_VALUE, ratios={}, cases=(), samples={})
        if draw < 0.6 and found.status is Status.CORRECT:  # others are of before it was measured
            return replace(found, descriptors={**found.descriptors, "error": draw})
        return found


def noisy_run(store: Store, run, archive) -> Search:
    remeasure = Scheduled(operator=Remeasure(least=0.0, share=0.3), weight=math.inf)
    search = make_search(
        store, run, archive=archive, operators=operators() | variants() | {"remeasure": remeasure}
    )
    run_to_end(search, Unsteady(noise=0.1, slots=3), evaluations=30)
    return search


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ARCHIVES)
def test_the_events_make_the_stored_archive(store, run, name):
    search = noisy_run(store, run, ARCHIVES[name]())
    events = list(store.offers(run.id))
    assert any(elite.evaluations > 1 for elite, _ in events)
    assert search.archive.slots() == store.slots(run.id)
    again = ARCHIVES[name]()
    for elite, offer in events:
        assert submit(again, elite) == offer
    assert again.slots() == store.slots(run.id)
    assert list(make_search(store, run, archive=ARCHIVES[name]()).population) == list(
        search.population
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ARCHIVES)
def test_a_projection_equals_an_archive_that_watched_from_the_start(store, run, name):
    watching = ARCHIVES[name]()

    class Watched(TopK):
        """Tells the other archive all that it is told: offers, and who is refuted."""

        describes = getattr(watching, "describes", {})

        def offer(self, elite):
            watching.offer(elite)
            return super().offer(elite)

        def remove(self, program):
            watching.remove(program)
            return super().remove(program)

    run_of = noisy_run(store, run, Watched(capacity=200)).run
    assert any(not elite.evaluations for elite, _ in store.offers(run.id))
    assert project(store, run_of, ARCHIVES[name]()).slots() == watching.slots()


def test_what_is_refuted_after_it_was_evicted_is_in_no_projection(store, run):
    proposals = instance(A), instance(B), instance(A, is_reevaluation=True)
    search = listed(store, run, *proposals, archive=TopK(capacity=1))
    put(search, 1.5)
    put(search, 2.0)
    assert search.population.elite(digest(A)) is None
    put(search, None)
    held = project(store, run, TopK(capacity=5)).slots().values()
    assert [elite.program for elite in held] == [digest(B)]


def test_texts_are_described_for_archives_that_read_them_and_for_projections(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 1.5)
    put(search, 1.4)
    assert "sketch" not in search.leader.descriptors
    (held,) = project(store, run, Novelty(of=TopK)).slots().values()
    assert held.descriptors["sketch"] == sketch(A)
    other = store.create_run(name="other", task=run.task, config={"baseline": "eager"}, seed=1)
    watching = make_search(store, other, archive=Novelty(of=TopK))
    watching.tell(ticket := watching.offer(A), verdict(watching, ticket, 1.5))
    assert watching.leader.descriptors["sketch"] == sketch(A)
    assert store.slots(other.id) == watching.archive.slots()


def test_what_is_near_is_turned_away_before_it_is_judged_where_that_is_asked_for(store, run):
    renamed = A.replace("NAME", "CALLED")
    search = listed(
        store,
        run,
        *(instance(A), instance(renamed), instance(A, 32)),
        archive=Novelty(of=TopK, epsilon=0.2, before_judging=True),
    )
    put(search, 1.5)
    near = search.ask()
    assert near.state is TicketState.TOLD
    assert near.failure.startswith("duplicate: ")
    assert search.progress.evaluations == 1
    put(search, 1.6)  # another instance of what is held is no near program


def test_a_recorded_run_with_repeated_measurements_is_replayed_as_it_was(store, run):
    async def search_serially(which, evaluator):
        remeasure = Scheduled(operator=Remeasure(least=0.0), weight=math.inf)
        search = make_search(store, which, operators=operators() | {"remeasure": remeasure})
        await Pipeline(search, evaluator, from_config({"evaluations": 15}), serial=True).run()

    asyncio.run(search_serially(run, SyntheticEvaluator(noise=0.1)))
    other = store.create_run(name="again", task=run.task, config=dict(run.config), seed=run.seed)
    asyncio.run(search_serially(other, ReplayEvaluator(store, run.id)))
    assert any('"again":true' in line for line in store.dump(run.id, canonical=True))
    assert list(store.dump(other.id, canonical=True)) == list(store.dump(run.id, canonical=True))


def test_a_lucky_measurement_does_not_reach_a_target(store, run):
    search = listed(store, run, instance(A), instance(A, is_reevaluation=True))
    put(search, 3.0)
    assert search.progress.best.low > 2.9
    put(search, 1.0)
    assert search.progress.best.value == pytest.approx(math.sqrt(3.0))
