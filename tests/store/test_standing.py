"""What a program is worth after several verdicts.

Invariants:
1. Full evaluations of an instance are pooled; of several instances the best counts.
2. An instance that one of them found wrong, or not custom, counts no more; a judge that failed or
   cannot say whether kernels were custom says nothing.
3. Of builds the first verdict tells; errors are the worst of all, and shares of the device's
   limits a mean.
"""

import math
from dataclasses import replace

import pytest

from evolve.core.evaluation import Evaluation, Status
from evolve.core.protocols import Failed, Proposal
from evolve.core.records import Ticket
from evolve.store import Store
from tests.store.facts import evaluation, new_run, program

WRONG = evaluation(None, status=Status.WRONG_VALUE, custom=None)


@pytest.fixture
def run(store: Store) -> int:
    return new_run(store).id


def judged(
    store: Store, run: int, verdict: Evaluation, block: int = 1, *, told: bool = True, parents=()
) -> Ticket:
    """A ticket of one program with a block, and its verdict."""
    proposal = Proposal(program=program(1), assignment={"BLOCK": block})
    ticket = store.propose(store.ask(run, "tune", parents), proposal)
    ticket = store.evaluated(ticket, verdict)
    if told:
        store.tell(ticket, None, None)
    return ticket


def with_case(**found: float) -> Evaluation:
    """A verdict with these descriptors of its program."""
    verdict = evaluation(2.0)
    return replace(verdict, descriptors=dict(verdict.descriptors) | found)


def test_one_verdict_is_the_standing(store: Store, run: int) -> None:
    ticket = judged(store, run, evaluation(2.0), told=False)
    elite = store.standing(run, ticket)
    assert elite.fitness == evaluation(2.0).fitness("eager") == store.pooled(run, ticket)
    assert (elite.program, elite.assignment) == (program(1).digest, {"BLOCK": 1})
    assert (elite.sequence, elite.operator, elite.evaluations) == (ticket.sequence, "tune", 1)


def test_verdicts_of_an_instance_are_pooled(store: Store, run: int) -> None:
    judged(store, run, evaluation(2.0))
    ticket = judged(store, run, evaluation(2.0), told=False)
    elite = store.standing(run, ticket)
    once = evaluation(2.0).fitness("eager")
    assert elite.evaluations == 2
    assert elite.fitness == store.pooled(run, ticket)
    assert elite.fitness.value == pytest.approx(once.value)
    assert elite.fitness.half_width == pytest.approx(once.half_width / math.sqrt(2), rel=0.01)


def test_the_best_instance_stands_for_a_program_and_of_equals_the_first(store, run) -> None:
    for block, speedup in ((1, 1.5), (2, 3.0), (3, 3.0), (4, 2.0)):
        ticket = judged(store, run, evaluation(speedup), block)
    assert store.standing(run, ticket).assignment == {"BLOCK": 2}
    assert math.exp(store.pooled(run, ticket).value) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("verdict", "counts"),
    [
        (WRONG, False),
        (evaluation(3.0, custom=False), False),
        (evaluation(3.0, custom=None), True),
        (evaluation(None, status=Status.INFRA, custom=None), True),
    ],
)
def test_an_instance_that_one_verdict_refutes_counts_no_more(store, run, verdict, counts) -> None:
    judged(store, run, evaluation(1.5), 1)
    judged(store, run, evaluation(2.0), 2)
    ticket = judged(store, run, verdict, 2)
    elite = store.standing(run, ticket)
    assert elite.assignment == {"BLOCK": 2 if counts else 1}
    assert elite.evaluations == 1
    assert (store.pooled(run, ticket) is not None) is counts


def test_a_program_without_an_instance_that_holds_has_no_standing(store: Store, run: int) -> None:
    ticket = judged(store, run, WRONG, told=False)
    assert store.standing(run, ticket) is None
    assert store.pooled(run, ticket) is None


def test_verdicts_that_are_not_told_yet_have_their_turn_later(store: Store, run: int) -> None:
    first = judged(store, run, evaluation(2.0), told=False)
    judged(store, run, evaluation(2.0), told=False)
    assert store.standing(run, first).evaluations == 1


def test_errors_are_the_worst_and_shares_of_the_limits_a_mean(store: Store, run: int) -> None:
    judged(store, run, with_case(error=0.2, memory_bytes=8.0, speed_of_light=0.2))
    ticket = judged(store, run, with_case(error=0.1, memory_bytes=9.0, speed_of_light=0.8))
    found = store.standing(run, ticket).descriptors
    assert (found["error"], found["memory_bytes"]) == (0.2, 9.0)
    assert found["speed_of_light"] == pytest.approx(0.4)
    assert found["log_speedup"] == store.standing(run, ticket).fitness.value


def test_a_program_keeps_the_parents_that_it_was_made_from(store: Store, run: int) -> None:
    first = judged(store, run, evaluation(2.0))
    other = Proposal(program=program(2), parents=(first.proposal.program.digest,))
    made = store.propose(store.ask(run, "edit", other.parents), other)
    made = store.evaluated(made, evaluation(2.5))
    store.tell(made, None, None)
    again = store.propose(store.ask(run, "tune", ()), replace(other, parents=()))
    again = store.evaluated(again, evaluation(2.5))
    assert store.standing(run, made).parents == other.parents
    assert store.standing(run, again).parents == other.parents


def test_a_ticket_that_has_nothing_to_tell_is_refused(store: Store, run: int) -> None:
    pending = store.propose(store.ask(run, "tune", ()), Proposal(program=program(1)))
    failed = store.propose(store.ask(run, "tune", ()), Failed("no code in it"))
    for ticket in (pending, failed):
        with pytest.raises(ValueError, match=f"ticket {ticket.sequence} has no verdict"):
            store.standing(run, ticket)
    with pytest.raises(ValueError, match=f"ticket {failed.sequence} holds no proposal"):
        store.pooled(run, failed)
