"""When operators that ask models act, and what becomes of an agent's answer.

Invariants:
1. `fires_at` names the first step at which an operator can act, by its setting.
2. An agent's answer is a program, or what it says; it is asked once.
3. An intent ends with its best correct program, or as failed once more.
"""

import pytest

from evolve.core.model import ModelRequest, ReplyStatus
from evolve.core.protocols import Declined, Failed, Proposal
from operators import Repair, Summarise, Supervise, WorldModel
from operators.llm import intents
from operators.llm.agent import CodingAgent
from tests.operators.history import (
    PLAIN,
    History,
    answer,
    constants_set,
    fenced,
    interpreted,
    name_of,
    prompt_of,
    request_of,
)


@pytest.mark.parametrize(
    ("operator", "fires"),
    [
        (WorldModel(window=3), {"window": 4}),
        (Summarise(every=7), {"every": 7}),
        (
            Supervise(stalled=8, wrong=5, rescue_after=3),
            {"stalled": 5, "rescue_after": 20},
        ),
        (
            Supervise(stalled=4, wrong=5, rescue_after=1),
            {"stalled": 4, "rescue_after": 8},
        ),
        (Repair(share=0.15, failing=2), {"share": 7, "failing": 2}),
        (Repair(share=0.0), {"share": 0, "failing": 0}),
    ],
)
def test_an_operator_says_when_it_can_first_act(operator, fires):
    assert operator.fires_at == fires


def grown(**changes: int) -> History:
    history = History()
    seed = history.add(PLAIN)
    if changes:
        history.add(constants_set(PLAIN, **changes), [seed.program])
    return history


def test_an_agent_is_asked_as_a_model_of_its_own_about_the_main_parent():
    history, operator = grown(), CodingAgent()
    asked = request_of(operator, history.context(history.elites()))
    assert (asked.model, operator.roles, operator.mends) == ("agent", ("agent",), 0)
    assert PLAIN.splitlines()[2] in prompt_of(asked)


def test_an_agents_answer_is_a_program_or_what_it_says():
    history = grown()
    found = interpreted(CodingAgent(), history, fenced(constants_set(PLAIN, BLOCK=64)))
    assert found.status is ReplyStatus.PROGRAM
    assert isinstance(found.outcome, Proposal)
    found = interpreted(CodingAgent(), history, "The second one that I tried is the best.")
    said = "no program but those that it tried: The second one that I tried is the best."
    assert (found.status, found.outcome) == (ReplyStatus.STEP, Failed(said))


class Planned:
    """A world model under way: a tree with one intent, and attempts at it."""

    def __init__(self, **settings) -> None:
        self.operator = WorldModel(**{"window": 2} | settings)
        self.name = name_of(self.operator)
        self.history = History()
        self.seed = self.history.add(PLAIN)
        self.plan('{"ops": [{"op": "insert_node", "title": "larger blocks", "score": 0.9}]}')

    def context(self):
        return self.history.context(self.history.elites()[:1], operator=self.name)

    def asked(self) -> ModelRequest:
        return request_of(self.operator, self.context())

    def plan(self, reply: str) -> None:
        exchange = answer(self.asked(), reply)
        self.history.exchange(self.name, exchange)
        assert isinstance(self.operator.interpret(self.context(), [exchange]).outcome, ModelRequest)

    def attempt(self, **changes: int) -> None:
        program = constants_set(PLAIN, **changes)
        self.history.add(program, [self.seed.program], operator=self.name)

    def tree(self):
        return intents.loads(str(self.asked().memo["tree"]))


def test_the_next_intent_is_attempted_until_its_window_is_over():
    planned = Planned()
    first = planned.asked()
    assert first.memo["intent"] == "i1: larger blocks"
    assert "larger blocks" in prompt_of(first)
    planned.attempt(BLOCK=32)
    assert planned.asked().purpose != "world_model"
    planned.attempt(BLOCK=8)
    planned.attempt(BLOCK=4)
    asked = planned.asked()
    assert (asked.purpose, asked.samples) == ("world_model", 1)


def test_an_intent_ends_with_its_best_program():
    planned = Planned()
    for block in (64, 8, 4):
        planned.attempt(BLOCK=block)
    done = planned.tree()["i1"]
    best = planned.history.elites()[0]
    assert (done.program, done.failed, done.is_open) == (best.program, 0, False)
    assert done.speedup > 1


def test_an_intent_without_a_correct_program_has_failed_once_more():
    planned = Planned()
    for _ in range(2):
        planned.history.fail("no code", [planned.seed.program], operator=planned.name)
    done = planned.tree()["i1"]
    assert (done.program, done.failed, done.is_open) == ("", 1, True)


def test_a_supervisor_waits_until_the_search_is_stuck():
    operator = Supervise(stalled=3, wrong=2)
    history = grown(BLOCK=64)
    context = history.context(history.elites()[:1], operator="supervise")
    assert operator.propose(context) == Declined("the search improves")
    for number in (1, 2, 3):
        history.add(constants_set(PLAIN, UNROLL=number + 1, BLOCK=2))
    context = history.context(history.elites()[:1], operator="supervise")
    asked = operator.propose(context)
    assert isinstance(asked, ModelRequest)
    assert asked.memo["redirections"] == 1
