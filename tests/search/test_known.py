"""What the database knows already is not judged again.

Invariants:
1. A verdict answers for exactly its instance, task revision, device class, evaluator version and
   fidelity, across the runs of a database.
2. It costs no device time and counts as the evaluation that it stands for.
3. Never for a verification, beside opponents, where judging again is asked for, or where there are
   several: the first may have been lucky. Nor where timing ended early for a run's best that is not
   this run's.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import EARLY_STOPPED, Fidelity, Label, Status
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.search.engine import Search
from evolve.search.schedule import Scheduled
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search, run_to_end


class Once:
    """Proposes the seed at a fidelity."""

    parents = 0

    def __init__(self, fidelity: Fidelity = Fidelity.SEARCH) -> None:
        self.fidelity = fidelity

    def propose(self, context):
        return Proposal(program=Program(SEED_SOURCE), fidelity=self.fidelity)


@pytest.fixture
def judged(store, run):
    """A run that has judged the seed in full."""
    search = make_search(store, run, operators={"once": Scheduled(operator=Once())})
    ticket = search.ask()
    search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))
    return search


def another(store, judged, fidelity=Fidelity.SEARCH, **changes) -> Search:
    """Another run of the same task that proposes the same instance."""
    name = f"other-{len(store.runs())}"
    run = store.create_run(name=name, task=judged.run.task, config={"baseline": "eager"}, seed=1)
    return make_search(
        store, run, operators={"once": Scheduled(operator=Once(fidelity))}, **changes
    )


def known(search, **judge):
    return search.known(search.request(search.ask()), SyntheticEvaluator(**judge))


def test_another_run_of_the_database_knows_the_verdict(store, judged):
    found = known(another(store, judged))
    assert found.ratios == store.evaluation(judged.run.id, 0).ratios
    assert found.device_time_s == 0


@pytest.mark.parametrize(
    "changes",
    [{"device_class": "synthetic: other"}, {"evaluator_version": "synthetic-2"}],
    ids=["another device", "another evaluator"],
)
def test_the_verdict_of_another_judge_is_no_answer(store, judged, changes):
    assert known(another(store, judged), **changes) is None


@pytest.mark.parametrize("fidelity", [f for f in Fidelity if f is not Fidelity.SEARCH])
def test_the_verdict_at_another_fidelity_is_no_answer(store, judged, fidelity):
    assert known(another(store, judged, fidelity)) is None


def test_a_verification_is_always_made(store, judged):
    ticket = judged.reevaluate(judged.leader, operator="verify", fidelity=Fidelity.VERIFY)
    request = judged.request(ticket)
    judged.tell(ticket, SyntheticEvaluator().judge(request))
    assert judged.known(request, SyntheticEvaluator()) is None


def test_beside_opponents_nothing_is_known(store, judged):
    assert known(another(store, judged, opponents={"file:mine.py": SEED_SOURCE})) is None


def test_what_another_runs_best_cut_short_is_judged_anew_where_it_may_matter(store, run):
    search = make_search(store, run, operators={"once": Scheduled(operator=Once())})
    ticket = search.ask()
    verdict = SyntheticEvaluator().judge(search.request(ticket))
    cut = replace(verdict, labels=(*verdict.labels, Label(EARLY_STOPPED, "behind its best")))
    search.tell(ticket, cut)
    other = another(store, search)
    request = other.request(other.ask())
    found = cut.ratios["eager"]
    for bar, is_answer in ((None, False), (0.9 * found.high, False), (1.1 * found.high, True)):
        barred = replace(request, target_speedups={"eager": bar} if bar else {})
        assert (other.known(barred, SyntheticEvaluator()) is not None) == is_answer


def timed(verdict, seconds, *labels):
    """Another measurement of the same."""
    labels = tuple(Label(name, "as a test has it") for name in labels)
    return replace(verdict, durations_s={"timing": seconds}, labels=(*verdict.labels, *labels))


def test_a_rough_verdict_beside_a_full_one_is_no_second_opinion(store, run):
    first = make_search(store, run, operators={"once": Scheduled(operator=Once())})
    ticket = first.ask()
    verdict = SyntheticEvaluator().judge(first.request(ticket))
    first.tell(ticket, timed(verdict, 1.0, EARLY_STOPPED))
    second = another(store, first)
    second.tell(second.ask(), full := timed(verdict, 2.0))
    third = another(store, first)
    ticket = third.ask()
    found = third.known(third.request(ticket), SyntheticEvaluator())
    assert found.durations_s == full.durations_s
    third.tell(ticket, found)
    assert known(another(store, first)).durations_s == full.durations_s  # a copy is none either
    fourth = another(store, first)
    fourth.tell(fourth.ask(), timed(verdict, 3.0))
    assert known(another(store, first)) is None


def test_judging_again_can_be_asked_for(store, judged):
    search = another(store, judged, reuse=False)
    assert known(search) is None
    evaluator = SyntheticEvaluator()
    run_to_end(search, evaluator, evaluations=1)
    assert evaluator.calls >= 1


@pytest.mark.parametrize("is_refuted", [False, True])
def test_one_of_several_verdicts_is_no_answer(store, judged, is_refuted):
    ticket = judged.reevaluate(judged.leader, operator="remeasure", fidelity=Fidelity.SEARCH)
    found = SyntheticEvaluator().judge(judged.request(ticket))
    if is_refuted:
        found = replace(found, status=Status.WRONG_VALUE, ratios={}, cases=(), samples={})
    judged.tell(ticket, found)
    assert known(another(store, judged)) is None
