"""The judge is told what a program has to reach: by how much it falls short is of no interest.

Invariants: the bar is the lower end of the best that is known, against the run's baseline; what is
weighed once more (a leader, a verification) and screens have none; no bar before there is a best.
"""

import math

import pytest

from evolve.core.evaluation import Fidelity
from evolve.core.program import Program
from evolve.core.protocols import Proposal
from evolve.search.schedule import Scheduled
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search

ANOTHER = f"{SEED_SOURCE}\n\nVARIANT = 1\n"


@pytest.fixture
def search(store, run):
    return make_search(store, run)


def judged(search):
    ticket = search.offer(SEED_SOURCE)
    search.tell(ticket, SyntheticEvaluator().judge(search.request(ticket)))


def test_the_first_program_has_no_bar(search):
    assert search.request(search.ask()).target_speedups == {}


def test_the_next_ones_have_the_lower_end_of_the_best(search):
    judged(search)
    best = search.leader.fitness
    asked = search.request(search.offer(ANOTHER))
    assert asked.target_speedups == {"eager": pytest.approx(math.exp(best.low))}


class Screens:
    """Proposes a program for a quick look."""

    parents = 0

    def propose(self, context):
        return Proposal(program=Program(ANOTHER), fidelity=Fidelity.SCREEN)


def test_a_screen_has_none(store, run):
    search = make_search(store, run, operators={"screens": Scheduled(operator=Screens())})
    first = search.offer(SEED_SOURCE)
    search.tell(first, SyntheticEvaluator().judge(search.request(first)))
    assert search.leader is not None
    assert search.request(search.ask()).target_speedups == {}


@pytest.mark.parametrize("fidelity", [Fidelity.SEARCH, Fidelity.VERIFY])
def test_what_is_weighed_again_has_none(search, fidelity):
    judged(search)
    ticket = search.reevaluate(search.leader, operator="again", fidelity=fidelity)
    assert search.request(ticket).target_speedups == {}
