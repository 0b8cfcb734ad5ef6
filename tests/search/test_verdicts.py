"""Verdicts that come from elsewhere.

Invariants:
1. What is told by way of files is what telling at once would have told: archive, counters, steps.
2. Telling again, in parts, or in another order changes nothing.
3. A verdict on something else is named and never told; a damaged one is named and never half told.
"""

import copy
import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolve.core.evaluation import Evaluation, Status
from evolve.evaluation.batch import as_batch, read_verdicts, write_requests
from evolve.search.verdicts import request_id, tell_verdicts, waiting_tickets
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from evolve.worker.service.batch_files import read_requests
from evolve.worker.service.shards import Shards
from tests.search.conftest import make_search, variants

JUDGE = SyntheticEvaluator()


def ask(search, count):
    """Tickets, and their answers as a batch would write them."""
    tickets = [search.ask() for _ in range(count)]
    return tickets, [answer_to(search, ticket) for ticket in tickets]


def answer_to(search, ticket, **changes):
    asked = search.request(ticket)
    request = as_batch(request_id(search.run, ticket), asked)
    result = JUDGE.judge(asked).to_json() | changes
    return {"id": request.id, "subject": request.subject, "final": True, "seconds": 1.0,
            "result": result}  # fmt: skip


def verdicts(folder: Path, answers):
    shards = Shards(folder)
    for answer in answers:
        shards.write(answer)
    shards.close()
    return read_verdicts(folder)


@pytest.fixture
def search(store, run):
    """A search whose first two programs were judged at once, so that there is an archive."""
    found = make_search(store, run, operators=variants())
    for _ in range(2):
        ticket = found.ask()
        found.tell(ticket, JUDGE.judge(found.request(ticket)))
    return found


def state(search):
    return (search.progress, search.archive.slots(), search.store.slots(search.run.id),
            list(search.store.dump(search.run.id, canonical=True)))  # fmt: skip


def test_requests_reach_the_file_as_the_judge_is_asked(search, tmp_path):
    tickets, _ = ask(search, 3)
    requests = [as_batch(request_id(search.run, t), search.request(t)) for t in tickets]
    write_requests(tmp_path / "new" / "in.jsonl", requests)
    assert read_requests(tmp_path / "new" / "in.jsonl") == (requests, [])
    assert [request.id for request in requests] == ["demo:2", "demo:3", "demo:4"]


def test_telling_by_files_is_telling_at_once(tmp_path):
    states = []
    for by_files in (True, False):
        with Store.open(tmp_path / f"{by_files}.db", create=True) as store:
            run = store.create_run(
                name="demo", task=synthetic_task(), config={"baseline": "eager"}, seed=7
            )
            search = make_search(store, run, operators=variants())
            tickets, answers = ask(search, 4)
            if by_files:
                outcome = tell_verdicts(search, verdicts(tmp_path / "out", answers))
                assert (outcome.told, outcome.problems) == (4, [])
            else:
                for ticket in tickets:
                    search.tell(ticket, JUDGE.judge(search.request(ticket)))
            states.append(state(search))
    assert states[0] == states[1]


@given(order=st.randoms(use_true_random=False), parts=st.integers(1, 4))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_parts_and_repetitions_in_any_order_end_the_same(tmp_path_factory, order, parts):
    folder = tmp_path_factory.mktemp("parts")
    with Store.open(folder / "evolve.db", create=True) as store:
        run = store.create_run(
            name="demo", task=synthetic_task(), config={"baseline": "eager"}, seed=7
        )
        search = make_search(store, run, operators=variants())
        _, answers = ask(search, 4)
        order.shuffle(answers)
        told = 0
        for part in range(parts):
            some = answers[part::parts] + answers[:part]
            told += tell_verdicts(search, verdicts(folder / str(part), some)).told
        before = state(search)
        again = tell_verdicts(search, verdicts(folder / "again", answers))
        assert (told, again.told, again.known, again.waiting) == (4, 0, 4, 0)
        assert state(search) == before
        assert search.progress.evaluations + search.progress.screens == 4


def test_what_has_no_verdict_keeps_waiting(search, tmp_path):
    tickets, answers = ask(search, 3)
    outcome = tell_verdicts(search, verdicts(tmp_path, answers[:1]))
    assert (outcome.told, outcome.waiting) == (1, 2)
    assert [ticket.id for ticket in waiting_tickets(search)] == [t.id for t in tickets[1:]]


def other(answer, name):
    """The answer with one thing in it that is about something else."""
    changed = copy.deepcopy(answer)
    match name:
        case "another revision of the task":
            changed["subject"]["task"] = changed["result"]["task_revision"] = "0" * 64
        case "another source":
            changed["subject"]["source"] = "0" * 64
        case "fidelity verify":
            changed["result"]["fidelity"] = changed["subject"]["fidelity"] = "verify"
        case "and this run is judged on synthetic":
            changed["result"]["device_class"] = "cuda: another"
        case "never asked for":
            changed["id"] = "demo:999"
        case "of run elsewhere":
            changed["id"] = "elsewhere:2"
        case "damaged":
            del changed["result"]["stage"]
    return changed


@pytest.mark.parametrize(
    "name",
    ["another revision of the task", "another source", "fidelity verify", "never asked for",
     "and this run is judged on synthetic", "of run elsewhere", "damaged"],
)  # fmt: skip
def test_a_verdict_on_something_else_is_named_and_not_told(search, tmp_path, name):
    _, answers = ask(search, 2)
    before = state(search)
    outcome = tell_verdicts(search, verdicts(tmp_path, [other(answers[0], name)]))
    assert outcome.told == 0
    assert len(outcome.problems) == 1
    assert name in outcome.problems[0]
    assert state(search) == before
    outcome = tell_verdicts(search, verdicts(tmp_path, answers))
    assert outcome.told == 2  # the right ones count all the same


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=3),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), junk=JUNK, remove=st.booleans())
@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_damaged_verdict_is_whole_or_nothing(search, tmp_path_factory, seed, junk, remove):
    ticket = (waiting_tickets(search) or [search.ask()])[0]
    answer = json.loads(json.dumps(answer_to(search, ticket)))
    damage(answer["result"], random.Random(seed), junk, remove)
    before = state(search)
    outcome = tell_verdicts(search, verdicts(tmp_path_factory.mktemp("x"), [answer]))
    stored = search.store.evaluation(search.run.id, ticket.sequence)
    if outcome.told:
        assert stored == Evaluation.from_json(answer["result"])
    else:
        assert outcome.problems
        assert stored is None
        assert state(search) == before


def damage(data, rng, junk, remove):
    """Change or take away one thing somewhere in plain data."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        key = rng.choice(keys)
        if isinstance(data[key], (dict, list)) and data[key] and rng.random() < 0.7:
            data = data[key]
            continue
        if remove:
            del data[key]
        else:
            data[key] = junk
        return


def test_a_verdict_of_our_own_fault_closes_its_step_as_ours(search, tmp_path):
    [ticket], _ = ask(search, 1)
    answer = answer_to(search, ticket, status="infra", ratios={}, cases=[], custom=None)
    assert tell_verdicts(search, verdicts(tmp_path, [answer])).told == 1
    step = search.store.step(search.run.id, ticket.sequence)
    assert step.status is Status.INFRA
