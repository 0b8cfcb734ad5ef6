"""What prompts may ask of a run's past (`evolve.core.protocols.Facts`):

1. Only this run's steps; verifications, the user's baseline and duplicates left out.
2. Newest first where it is about what was tried, oldest first where it is about how it came to be.
3. Bounded, and its cost does not grow with the run.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import OPPONENT, VERIFY
from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, Reservation, Usage
from evolve.core.protocols import FEEDBACK_LIMIT, Failed, Proposal
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, program, take_step
from tests.store.servers import ON_A_SERVER
from tests.store.test_scale import instructions

BACK_ENDS = ("sqlite", ON_A_SERVER)

WORST = Reservation(tokens=500, usd=0.5)


def wrong(text: str = "value differs at 3"):
    judged = evaluation(None, status=Status.WRONG_VALUE, custom=None)
    return replace(judged, feedback=text)


def step(
    store: Store, run: int, number: int, judged=None, *, parents=(), operator="tune", **fields
):
    """One told step of any outcome."""
    ticket = store.ask(run, operator, parents)
    ticket = store.propose(ticket, Proposal(program=program(number), parents=parents, **fields))
    ticket = store.evaluated(ticket, judged or evaluation(1.0 + number / 100))
    store.tell(ticket, None, None)
    return ticket


@pytest.fixture
def run(store: Store) -> int:
    return new_run(store).id


def numbers(attempts) -> list[int]:
    return [attempt.sequence for attempt in attempts]


def test_the_newest_steps_come_first_and_are_bounded(store: Store, run: int) -> None:
    for number in range(5):
        step(store, run, number)
    assert numbers(store.recent(run, 3)) == [4, 3, 2]


def test_failed_and_correct_steps_are_told_apart(store: Store, run: int) -> None:
    step(store, run, 1)
    step(store, run, 2, wrong())
    store.propose(store.ask(run, "edit", ()), Failed("no code in it"))
    store.propose(store.ask(run, "edit", ()), Failed("duplicate: known"))
    assert numbers(store.recent(run, 9)) == [2, 1, 0]
    assert numbers(store.recent(run, 9, failed=True)) == [2, 1]
    assert numbers(store.recent(run, 9, failed=False)) == [0]
    assert numbers(store.recent(run, 9, operator="edit")) == [2]
    [found] = store.recent(run, 9, failed=True, operator="tune")
    assert (found.status, found.feedback) == (Status.WRONG_VALUE, "value differs at 3")


def test_what_the_search_did_not_try_is_left_out(store: Store, run: int) -> None:
    step(store, run, 1, operator=OPPONENT)
    step(store, run, 2, operator=VERIFY, fidelity=Fidelity.VERIFY)
    step(store, run, 3, wrong(), operator="tune")
    assert numbers(store.recent(run, 9)) == [2]
    other = new_run(store, "other").id
    assert store.recent(other, 9) == []


def test_feedback_is_cut_and_whole_in_the_evaluation(store: Store, run: int) -> None:
    text = "x" * (3 * FEEDBACK_LIMIT)
    step(store, run, 1, wrong(text))
    assert len(store.recent(run, 1)[0].feedback) == FEEDBACK_LIMIT
    assert store.attempt_evaluation(run, program(1).digest).feedback == text


def test_children_are_those_of_the_main_parent_pending_ones_too(store: Store, run: int) -> None:
    one, two = (step(store, run, number).proposal.program.digest for number in (1, 2))
    step(store, run, 3, parents=(one,))
    step(store, run, 4, parents=(two, one))
    store.ask(run, "edit", (one,))
    step(store, run, 1, parents=(one,), assignment={"BLOCK": 2})  # an instance, not a child
    assert numbers(store.children(run, one, 9)) == [4, 2]
    assert numbers(store.children(run, one, 1)) == [4]
    assert store.children(run, one, 9)[0].parents == (one,)
    assert numbers(store.children(run, two, 9)) == [3]


def test_a_line_is_told_from_its_beginning_along_main_parents(store: Store, run: int) -> None:
    line: tuple[str, ...] = ()
    for number in range(1, 6):
        digest = step(store, run, number, parents=line).proposal.program.digest
        line = (digest,)
    assert numbers(store.line(run, line[0], 9)) == [0, 1, 2, 3, 4]
    assert numbers(store.line(run, line[0], 2)) == [3, 4]
    assert store.line(run, program(99).digest, 9) == []


def test_the_evaluation_of_a_program_is_that_of_its_best_instance(store: Store, run: int) -> None:
    step(store, run, 1, evaluation(1.5), assignment={"BLOCK": 1})
    step(store, run, 1, evaluation(3.0), assignment={"BLOCK": 2})
    step(store, run, 1, wrong(), assignment={"BLOCK": 3})
    found = store.attempt_evaluation(run, program(1).digest)
    assert found.ratios["eager"].value == 3.0
    assert found.samples == {}
    assert store.attempt_evaluation(run, program(2).digest) is None


def test_an_evicted_elite_is_known_as_it_was(store: Store, run: int) -> None:
    archive = SmallArchive(places=1)
    for number in (2, 1):
        take_step(store, run, archive, number)
    held = {elite.program for elite in store.slots(run).values()}
    for number in (1, 2):
        known = store.elite(run, program(number).digest)
        assert known is not None
        assert known.program == program(number).digest
    assert len(held) == 1
    assert store.elite(run, program(7).digest) is None


def ask(store: Store, run: int, question: str, purpose: str = "propose", **reply):
    request = ModelRequest(
        messages=(Message("user", question),), model="m", purpose=purpose, memo={"n": 1, "why": "x"}
    )
    [ticket] = store.request(run, "write", (), request, "m")
    call = store.begin_call(ticket, WORST)
    said = {"status": CallStatus.COMPLETED, "text": f"answer to {question}"}
    said |= {"usage": Usage(prompt=3, completion=4, cached=1), "cost_usd": 0.01}
    return store.end_call(call, ModelReply(**said | reply))


def test_exchanges_are_the_completed_calls_for_a_purpose(store: Store, run: int) -> None:
    for number in range(4):
        ask(store, run, f"question {number}", "summarise")
    ask(store, run, "lost", "summarise", status=CallStatus.UNKNOWN, text="", usage=None)
    ask(store, run, "other")
    found = store.exchanges(run, "write", "summarise", 2)
    assert [each.reply.text for each in found] == ["answer to question 3", "answer to question 2"]
    assert found[0].request.memo == {"n": 1, "why": "x"}
    assert found[0].request.messages == (Message("user", "question 3"),)
    assert found[0].reply.usage == Usage(prompt=3, completion=4, cached=1)
    assert store.exchanges(run, "else", "summarise", 2) == []


def test_the_newest_requests_are_those_whatever_came_of_them(store: Store, run: int) -> None:
    assert store.requests(run, "write", "summarise", 2) == []
    ask(store, run, "answered", "summarise")
    ask(store, run, "lost", "summarise", status=CallStatus.UNKNOWN, text="", usage=None)
    ask(store, run, "other")
    (lost,) = store.requests(run, "write", "summarise", 1)
    assert lost.messages == (Message("user", "lost"),)
    request = ModelRequest(messages=(Message("user", "open"),), model="m", purpose="summarise")
    store.request(run, "write", (), request, "m")
    newest = store.requests(run, "write", "summarise", 2)
    assert [each.messages for each in newest] == [request.messages, lost.messages]
    assert store.requests(run, "else", "summarise", 2) == []


def test_proposals_that_a_model_is_asked_for_are_counted_once(store: Store, run: int) -> None:
    request = ModelRequest(messages=(Message("user", "open"),), model="m", samples=2)
    waiting, _ = store.request(run, "write", (), request, "m")
    assert store.proposals(run, "write") == 2
    call = store.begin_call(waiting, WORST)
    replied = store.end_call(call, ModelReply(status=CallStatus.COMPLETED, text="now"))
    assert store.proposals(run, "write") == 2
    store.propose(replied, Proposal(program=program(1)))
    assert store.proposals(run, "write") == 2
    assert store.proposals(run, "else") == 0


def test_answers_that_are_given_again_cost_nothing(store: Store, run: int) -> None:
    ask(store, run, "recorded", attempts=0)
    assert store.costs(run) == []
    ask(store, run, "paid")
    [cost] = store.costs(run)
    assert (cost.calls, cost.usd) == (1, 0.01)


def test_a_recorded_reply_is_found_by_its_key_and_sample(store: Store, run: int) -> None:
    one = ask(store, run, "same", text="first").exchanges[0].request
    ask(store, run, "same", text="second")
    assert store.recorded_reply(run, one.key, 0).text == "first"
    assert store.recorded_reply(run, one.key, 1).text == "second"
    assert store.recorded_reply(run, one.key, 2) is None


def test_ending_a_call_twice_changes_nothing(store: Store, run: int) -> None:
    request = ModelRequest(messages=(Message("user", "once"),), model="m")
    [ticket] = store.request(run, "write", (), request, "m")
    call = store.begin_call(ticket, WORST)
    first = store.end_call(call, ModelReply(status=CallStatus.COMPLETED, text="one"))
    before = store.progress(run)
    assert store.end_call(call, ModelReply(status=CallStatus.COMPLETED, text="two")) == first
    assert store.progress(run) == before


def test_a_call_that_was_not_accepted_leaves_its_ticket_open_and_costs_nothing(
    store: Store, run: int
) -> None:
    request = ModelRequest(messages=(Message("user", "again"),), model="m")
    [ticket] = store.request(run, "write", (), request, "m")
    refused = ModelReply(status=CallStatus.UNAVAILABLE, error="down")
    again = store.end_call(store.begin_call(ticket, WORST), refused)
    assert again.request == request
    answered = store.end_call(
        store.begin_call(again, WORST), ModelReply(status=CallStatus.COMPLETED, text="now")
    )
    assert answered.exchanges[0].reply.text == "now"
    assert store.costs(run)[0].calls == 1


@pytest.mark.slow
@pytest.mark.parametrize("location", ["sqlite"], indirect=True)
def test_questions_cost_the_same_late_in_a_run(store: Store, run: int) -> None:
    def grow(span: range) -> None:
        for number in span:
            parent = (program(number // 2).digest,) if number > 2 else ()
            step(store, run, number, wrong() if number % 5 == 0 else None, parents=parent)
            if number % 10 == 0:
                store.propose(ask(store, run, f"question {number}"), Failed("no"))

    def questions() -> None:
        known = program(3).digest
        store.recent(run, 4, failed=True)
        store.recent(run, 4, operator="tune")
        store.children(run, known, 4)
        store.line(run, known, 5)
        store.attempt_evaluation(run, known)
        store.elite(run, known)
        store.exchanges(run, "write", "propose", 2)
        store.requests(run, "write", "propose", 2)
        store.proposals(run, "write")
        store.recorded_reply(run, "0" * 64, 0)
        store.arms(run)
        store.environment(run)
        store.pending_calls(run)

    grow(range(1, 60))
    early = instructions(store, questions)
    grow(range(60, 900))
    assert early > 0
    assert instructions(store, questions) < 1.3 * early
