"""The end of a run because no operator has anything to propose.

Invariants:
1. If nothing was ever proposed, each operator's own reason or failure is the run's.
2. Otherwise the end is an ordinary one.
"""

import pytest

from evolve.core.program import Program
from evolve.core.protocols import Declined, Failed, Proposal
from evolve.search.schedule import Scheduled
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search, run_to_end


class Declines:
    parents = 0

    def propose(self, context):
        return Declined("there is nothing to do on this device")


class FailsOnce:
    parents = 0

    def propose(self, context):
        if context.facts.proposals(context.operator):
            return Declined("everything has been proposed")
        return Failed("the package x is not installed")


class ProposesOnce:
    parents = 0

    def propose(self, context):
        if context.facts.proposals(context.operator):
            return Declined("everything has been proposed")
        return Proposal(program=Program(SEED_SOURCE))


def ended(store, run, *operators) -> str:
    named = {type(one).__name__: Scheduled(operator=one) for one in operators}
    search = make_search(store, run, operators=named)
    return run_to_end(search, SyntheticEvaluator(), proposals=9).reason


@pytest.mark.parametrize("by", [1, -1])
def test_a_run_in_which_nothing_was_proposed_says_why_each_operator_did_not(store, run, by):
    reason = ended(store, run, *(Declines(), FailsOnce())[::by])
    assert reason.startswith("nothing is left to propose: ")
    assert "Declines: there is nothing to do on this device" in reason
    assert "FailsOnce: the package x is not installed" in reason


def test_a_run_that_has_proposed_ends_without_the_reasons_of_operators(store, run):
    assert ended(store, run, Declines(), ProposesOnce()) == "nothing is left to propose"
