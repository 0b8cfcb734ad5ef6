"""Operators that ask about a program of the run: repair, clean-up, review.

Invariants:
1. A program is asked about as often as the operator allows, calls under way included.
2. Repairs stop at their share of the steps.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Status
from evolve.core.model import ModelRequest
from evolve.core.protocols import Declined
from operators import (
    CleanUp,
    Repair,
    Review,
)
from tests.operators.history import (
    PLAIN,
    History,
    constants_set,
    fenced,
    interpreted,
    name_of,
    prompt_of,
    request_of,
    run_of,
)
from tests.operators.test_prompts import asked

BETTER = constants_set(PLAIN, BLOCK=128)


# Repair


def test_a_failed_program_is_repaired_and_named_as_parent():
    history = run_of(PLAIN)
    broken = history.add(BETTER, status=Status.COMPILE_ERROR, feedback="no ;")
    operator = Repair(share=1.0)
    prompt = prompt_of(asked(operator, history))
    assert "# The program to repair" in prompt
    assert "no ;" in prompt
    reading = interpreted(operator, history, fenced(BETTER + "x = 1\n"))
    assert reading.outcome.parents == (broken.program,)


@pytest.mark.parametrize(
    ("operator", "plant"),
    [
        (Repair(share=1.0), lambda history: None),
        (Repair(share=1.0), lambda history: history.add(BETTER, status=Status.HACK)),
        (Repair(share=0.0), lambda history: history.add(BETTER, status=Status.OOM)),
        (Repair(share=1.0), lambda history: history.fail("no_code")),
        (
            Repair(share=1.0, attempts=1),
            lambda history: history.add(
                BETTER + "x = 1\n",
                [history.add(BETTER, status=Status.OOM).program],
                operator="repair",
            ),
        ),
        (
            Repair(share=1.0, attempts=1, depth=1),
            lambda history: history.add(
                BETTER + "x = 1\n",
                [history.add(BETTER, status=Status.OOM).program],
                operator="repair",
                status=Status.OOM,
            ),
        ),
    ],
    ids=["nothing failed", "a hack", "no share", "no program", "tried before", "a repair's repair"],
)
def test_there_is_nothing_to_repair(operator, plant):
    history = run_of(PLAIN)
    plant(history)
    assert isinstance(operator.propose(history.context(operator="repair")), Declined)


def test_repairs_stop_at_their_share_of_the_steps():
    history = run_of(PLAIN)
    for number in range(9):
        history.add(BETTER + f"x{number} = 1\n", status=Status.OOM)
    operator = Repair(share=0.1)
    assert isinstance(operator.propose(history.context(operator="repair")), ModelRequest)
    history.add(BETTER + "y = 1\n", operator="repair")
    assert isinstance(operator.propose(history.context(operator="repair")), Declined)


# What the compiler wrote


def compiled(history: History, *answers: str) -> None:
    """A compiled program, a failed one, and answers about the first."""
    first = history.add(PLAIN, operator="inductor")
    history.add(BETTER, operator="inductor", status=Status.WRONG_VALUE)
    for number, operator in enumerate(answers):
        history.add(PLAIN + f"y{number} = 1\n", [first.program], operator=operator)


def test_a_compiled_program_is_asked_for_in_readable_form_with_its_reasoning():
    history = History()
    compiled(history)
    operator = CleanUp()
    prompt = prompt_of(asked(operator, history))
    assert "# The program to clean up" in prompt
    assert PLAIN.splitlines()[-1].strip() in prompt
    reading = interpreted(operator, history, fenced(BETTER + "x = 1\n"))
    assert reading.outcome.parents == (history.attempts[0].program,)


@pytest.mark.parametrize(
    ("operator", "answers", "asks"),
    [
        (CleanUp(), ["clean_up"], False),
        (CleanUp(), ["edit"], True),
        (CleanUp(attempts=2), ["clean_up"], True),
        (CleanUp(attempts=2), ["clean_up", "clean_up"], False),
        (CleanUp(compilers=["template_seed"]), [], False),
    ],
)
def test_each_compiled_program_is_cleaned_up_as_often_as_asked_for(operator, answers, asks):
    history = History()
    compiled(history, *answers)
    found = operator.propose(history.context(operator="clean_up"))
    assert isinstance(found, ModelRequest) == asks


@pytest.mark.parametrize(
    ("operator", "maker", "status", "most"),
    [
        (CleanUp(attempts=2), "inductor", None, 2),
        (Repair(share=1.0, attempts=2), "edit", Status.OOM, 2),
        (Review(jump=1.0), "edit", None, 1),
    ],
    ids=["clean_up", "repair", "review"],
)
def test_no_program_is_asked_about_too_often_while_answers_are_under_way(
    operator, maker, status, most
):
    """Of calls that run side by side each was about the same program, and paid for."""
    history = run_of(PLAIN)
    history.add(BETTER, operator=maker, status=status)
    name = name_of(operator)
    for _ in range(most):
        history.asked(name, request_of(operator, history.context(operator=name)))
    assert isinstance(operator.propose(history.context(operator=name)), Declined)


def test_a_jump_that_was_measured_again_is_reviewed_all_the_same():
    """By `remeasure`, which confirms each leader."""
    history = run_of(PLAIN, BETTER)
    context = history.context(operator="review")
    confirmed = [replace(elite, evaluations=2) for elite in context.elites]
    request = request_of(Review(jump=1.0), replace(context, elites=confirmed))
    assert request.purpose == "review"
