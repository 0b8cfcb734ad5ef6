"""A run read back for training.

Invariants:
1. A record holds the step as it was stored, and of other steps only earlier ones, except `later`.
2. Texts and raw times are read on request only.
3. A run is read page by page, each step once and in order.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.model import (
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    ReplyStatus,
    Reservation,
    Sampling,
    TokenTrace,
    Usage,
)
from evolve.core.protocols import Failed, Proposal
from evolve.store import Store
from evolve.store.training.program_history import MAX_REPEATS
from evolve.store.training.trajectory import Reader
from tests.store.facts import SmallArchive, evaluation, new_run, program, ratio, take_step

REQUEST = ModelRequest(
    messages=(Message("system", "Be brief."), Message("user", "Improve on 01234567.")),
    model="planner",
    sampling=Sampling(temperature=0.5, seed=3, stop=("END",)),
    max_tokens=100,
    purpose="rewrite",
    memo={"plan": 1},
)
REPLY = ModelReply(
    status=CallStatus.TRUNCATED,
    text="Here it is.",
    reasoning="Hm.",
    finish_reason="length",
    usage=Usage(prompt=30, completion=20, cached=10, reasoning=5),
    cost_usd=0.25,
    latency_s=1.5,
    attempts=2,
    model="planner-2",
    trace=TokenTrace(prompt_ids=(1, 2), ids=(3,), logprobs=(-0.5,)),
)


def mentions(text: str) -> tuple[str, ...]:
    return tuple(word.strip(".")[:8] for word in text.split() if len(word.strip(".")) == 8)


def read(store: Store, run, **more):
    pages = list(Reader(store, run, **{"mentions": mentions} | more).pages())
    return [record for page in pages for record in page]


def ask_model(store: Store, run, request=REQUEST, reply=REPLY, parents=()):
    (ticket,) = store.request(run.id, "rewrite", parents, request, "some/model")
    call = store.begin_call(ticket, Reservation(tokens=100, usd=0.5))
    return store.end_call(call, reply)


def judged_step(store: Store, ticket, judged) -> None:
    store.start_evaluation(ticket)
    store.tell(store.evaluated(ticket, judged), None, None)


def repeat(store: Store, run, number: int, judged) -> None:
    """The same program once more."""
    proposal = Proposal(program=program(number), fidelity=judged.fidelity)
    judged_step(store, store.record(run.id, "remeasure", (), proposal), judged)


def test_a_record_holds_the_step_as_it_was_stored(store):
    run, archive = new_run(store), SmallArchive()
    take_step(store, run.id, archive, 1, judged=evaluation(1.1))
    parents, judged = (program(1).digest,), evaluation(1.5)
    take_step(store, run.id, archive, 5, parents=parents, assignment={"B": 8}, judged=judged)
    first, found = read(store, run, samples=True)
    assert (found.sequence, found.operator, found.model, found.note) == (1, "tune", "", "")
    assert (found.program, found.source) == (program(5).digest, program(5).source)
    assert (found.assignment, found.fidelity) == ({"B": 8}, Fidelity.SEARCH)
    assert (found.evaluation, found.later, found.failure) == (judged, (), "")
    assert (found.offer, found.slot, found.parents) == (1, "place1", parents)
    assert (found.maker, found.first, found.parent_makers) == (1, 1, (0,))
    assert (found.parent.program, found.parent.source) == (parents[0], program(1).source)
    assert (found.parent.evaluation, found.parent.assignment) == (first_known(first), {})
    assert (found.shown, found.shown_makers, found.asked) == (ratio(1.1), (0,), None)
    assert (first.parent, first.parents, first.shown, first.shown_makers) == (None, (), None, ())


def first_known(first):
    return replace(first.evaluation, samples={})


def test_texts_and_raw_times_are_read_on_request_only(store):
    run = new_run(store)
    take_step(store, run.id, SmallArchive(), 1, judged=evaluation(1.5))
    store.propose(ask_model(store, run), Failed("no code"), ReplyStatus.NO_CODE)
    judged, asked = read(store, run, texts=False)
    assert (judged.source, judged.evaluation.feedback, judged.evaluation.samples) == ("", "", {})
    assert judged.evaluation == replace(evaluation(1.5), feedback="", samples={})
    assert (asked.asked.exchanges, asked.asked.key) == ((), REQUEST.key)
    assert read(store, run)[0].evaluation == replace(evaluation(1.5), samples={})


def test_requests_and_replies_come_back_as_they_were(store):
    run = new_run(store)
    asked = ask_model(store, run)
    second = replace(REQUEST, messages=REQUEST.messages[:1], model=None, memo={})
    asked = store.propose(asked, second)
    call = store.begin_call(asked, Reservation(tokens=100, usd=0.5))
    refused = ModelReply(status=CallStatus.UNAVAILABLE, error="busy")
    asked = store.end_call(call, refused)
    call = store.begin_call(asked, Reservation(tokens=100, usd=0.5))
    plain = ModelReply(status=CallStatus.REFUSED, text="No.")
    store.propose(store.end_call(call, plain), Failed("refused"), ReplyStatus.REFUSED)
    (found,) = read(store, run)
    assert (found.model, found.failure, found.program) == ("some/model", "refused", None)
    assert (found.maker, found.first, found.source, found.assignment) == (None, None, "", {})
    assert (found.asked.key, found.asked.reading) == (REQUEST.key, ReplyStatus.REFUSED)
    assert [each.request for each in found.asked.exchanges] == [REQUEST, second]
    assert [each.reply for each in found.asked.exchanges] == [REPLY, plain]
    assert found.asked.models == {"planner", ""}


def test_only_earlier_steps_are_known_to_a_record(store):
    run, parents = new_run(store), (program(1).digest,)
    archive = SmallArchive()
    take_step(store, run.id, archive, 1, judged=evaluation(1.2))
    take_step(store, run.id, archive, 2, parents=parents, judged=evaluation(1.1))
    repeat(store, run, 1, evaluation(1.4))
    repeat(store, run, 1, evaluation(1.3))
    take_step(store, run.id, archive, 3, parents=parents, judged=evaluation(1.1))
    found = read(store, run)
    assert [record.shown for record in found] == [None, ratio(1.2), None, None, ratio(1.4)]
    assert [len(record.later) for record in found] == [2, 0, 1, 0, 0]
    assert [record.maker for record in found] == [0, 1, 0, 0, 4]
    assert [each.ratios["eager"] for each in found[0].later] == [ratio(1.4), ratio(1.3)]


@pytest.mark.parametrize(
    "worse",
    [
        evaluation(9.0, fidelity=Fidelity.SCREEN),
        evaluation(9.0, custom=None),
        evaluation(None, status=Status.WRONG_VALUE),
        evaluation(None, status=Status.INFRA),
    ],
)
def test_the_best_of_a_parent_is_measured_in_full(store, worse):
    run = new_run(store)
    take_step(store, run.id, SmallArchive(), 1, judged=evaluation(1.2))
    repeat(store, run, 1, worse)
    take_step(store, run.id, SmallArchive(), 2, parents=(program(1).digest,))
    found = read(store, run)[-1]
    assert found.shown == ratio(1.2)
    assert found.parent.evaluation.ratios["eager"] == ratio(1.2)


def test_the_newest_verdict_stands_for_a_parent_that_was_never_measured_in_full(store):
    run = new_run(store)
    repeat(store, run, 1, evaluation(None, status=Status.WRONG_VALUE))
    repeat(store, run, 1, evaluation(None, status=Status.TIMEOUT))
    repeat(store, run, 1, evaluation(None, status=Status.INFRA))
    take_step(store, run.id, SmallArchive(), 2, parents=(program(1).digest,))
    found = read(store, run)[-1]
    assert (found.parent.evaluation.status, found.shown) == (Status.TIMEOUT, None)


def test_of_many_repeats_those_that_find_fault_are_kept(store):
    run = new_run(store)
    take_step(store, run.id, SmallArchive(), 1, judged=evaluation(1.2))
    wrong = evaluation(None, status=Status.WRONG_VALUE)
    not_custom = evaluation(None, custom=False)
    for judged in (wrong, not_custom, *[evaluation(1.3)] * (MAX_REPEATS - 2)):
        repeat(store, run, 1, judged)
    assert len(read(store, run)[0].later) == MAX_REPEATS
    for number in (2, 3):
        repeat(store, run, 1, evaluation(float(number)))
    kept = read(store, run)[0].later
    assert len(kept) == MAX_REPEATS
    assert [each.status for each in kept[:2]] == [Status.WRONG_VALUE, Status.CORRECT]
    assert [each.custom for each in kept[:3]] == [True, False, True]
    assert [each.ratios["eager"].value for each in kept[-2:]] == [2.0, 3.0]


def test_programs_that_a_prompt_shows_are_known_by_the_beginnings_of_their_digests(store):
    run, archive = new_run(store), SmallArchive()
    for number in (1, 2, 3):
        take_step(store, run.id, archive, number, judged=evaluation(1.0 + number / 10))
    text = f"Improve on {program(3).digest[:8]} and {program(1).digest[:8]}."
    request = replace(REQUEST, messages=(Message("user", text),))
    asked = ask_model(store, run, request, parents=(program(2).digest,))
    store.propose(asked, Failed("no code"), ReplyStatus.NO_CODE)
    found = read(store, run)[-1]
    assert set(found.shown_makers) == {0, 1, 2}
    assert found.shown == ratio(1.3)
    assert (found.parents, found.parent_makers) == ((program(2).digest,), (1,))


def test_every_step_is_read_once_and_in_order(store):
    run = new_run(store)
    for _ in range(100):
        store.record(run.id, "seed", (), Failed("nothing"))
    reader = Reader(store, run, mentions=mentions)
    assert [len(page) for page in reader.pages()] == [100]
    store.record(run.id, "seed", (), Failed("the last"))
    store.ask(run.id, "seed", ())  # which is not told
    pages = list(Reader(store, run, mentions=mentions).pages())
    assert [len(page) for page in pages] == [100, 1]
    assert [record.sequence for page in pages for record in page] == list(range(101))
    assert [record.failure for record in reader.at([100, 3, 101])] == ["nothing", "the last"]
    assert list(Reader(store, new_run(store, "empty"), mentions=mentions).pages()) == []
