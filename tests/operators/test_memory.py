"""Memory across runs.

Invariants:
1. Only finished runs on the same kind of operation count, the newest first.
2. A failure becomes a rule if it occurred often enough; places and numbers tell none apart.
3. Only gains by a whole interval are ideas, and the best program of each run.
4. What does not fit into the tokens is left out, whole.
"""

from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.model import CallStatus, Message, ModelReply, ModelRequest, ReplyStatus
from evolve.core.protocols import Failed, Proposal
from evolve.core.recalled import Kind
from evolve.core.task import Task
from evolve.store import Store
from operators.memory import Recall, operation_kind
from operators.memory.rules import MAX_CHARS, message_of
from operators.prompting.composition import SUMMARY
from tests.store.facts import SmallArchive, elite, evaluation, program, take_step

NORM = Task(name="norm", source="class Model: ...", category="norm")


@pytest.fixture
def store(tmp_path):
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        yield opened


def run_of(store: Store, name: str, task: Task = NORM):
    return store.create_run(name=name, task=task, config={}, seed=1)


def fail(store: Store, run, number: int, status: Status, feedback: str) -> str:
    judged = replace(evaluation(None, status=status), feedback=feedback)
    take_step(store, run.id, SmallArchive(), number, judged=judged)
    return program(number).digest


def found(store: Store, *runs, task: Task = NORM, **settings):
    recalled = Recall(**{"tokens": 10_000} | settings).of(store, runs, task)
    return [(each.kind, each.about, each.words) for each in recalled]


def rules_of(store: Store, *runs, **settings) -> list[tuple[str, str]]:
    return [each[1:] for each in found(store, *runs, **settings) if each[0] is Kind.RULE]


def test_a_failure_that_occurred_often_enough_becomes_a_rule(store):
    run = run_of(store, "first")
    for number in (1, 2, 3):
        text = f"line {number} in forward: y = f({number})\nNameError: no f{number}"
        fail(store, run, number, Status.RUNTIME_EXCEPTION, text)
    fail(store, run, 4, Status.TIMEOUT, "it took 3 s")
    take_step(store, run.id, SmallArchive(), 5, judged=evaluation(1.5))
    about = "runtime exception, 3 of 5 attempts in run first, "
    assert rules_of(store, run) == [(f"{about}cpu-test", "NameError: no f3")]
    assert rules_of(store, run, seen=4) == []
    timeout = "timeout, 1 of 5 attempts in run first, cpu-test"
    assert [each for each, _ in rules_of(store, run, seen=1)] == [f"{about}cpu-test", timeout]


def test_a_rule_has_the_note_of_a_correct_program_that_was_made_of_a_failed_one(store):
    run = run_of(store, "first")
    failed = fail(store, run, 1, Status.TIMEOUT, "it took 3 s")
    for number, judged, note in (
        (2, evaluation(None, status=Status.OOM), "larger"),
        (3, evaluation(1.5, custom=False), "a library"),
        (4, evaluation(1.5), "fewer\n loops " + "x" * MAX_CHARS),
    ):
        proposal = Proposal(program=program(number), parents=(failed,), note=note)
        ticket = store.record(run.id, "mend", (failed,), proposal)
        store.start_evaluation(ticket)
        store.tell(store.evaluated(ticket, judged), None, None)
    words = dict(rules_of(store, run, seen=1))["timeout, 1 of 4 attempts in run first, cpu-test"]
    made = "The correct program that was made of one of them: "
    assert words == f"it took 3 s\n{made}{('fewer loops ' + 'x' * MAX_CHARS)[:MAX_CHARS]}"


def test_proposals_without_a_program_make_rules_too(store):
    one, other = run_of(store, "one"), run_of(store, "other")
    for run in (one, other):
        store.record(run.id, "edit", (), Failed(f"no block {run.id}"))
    about = "no program, 2 of 2 attempts in runs other, one, "
    assert rules_of(store, one, other, seen=2) == [(about, "no block 2")]


@pytest.mark.parametrize("status", [Status.INFRA, Status.HACK, Status.TIMING_UNBOUNDED])
def test_verdicts_that_say_nothing_of_a_fault_make_no_rules(store, status):
    run = run_of(store, "first")
    fail(store, run, 1, status, "it says nothing")
    assert rules_of(store, run, seen=1) == []


def test_the_most_frequent_failures_are_the_first_eight_rules(store):
    run = run_of(store, "first")
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"]
    for place, word in enumerate(words):
        for again in range(1 + place // 8):
            fail(store, run, 10 * place + again, Status.OOM, word)
    said = [text for _, text in rules_of(store, run, seen=1)]
    assert said == ["iota", *sorted(words[:8])[:7]]


@pytest.mark.parametrize(
    ("feedback", "message"),
    [
        ("", ""),
        ("plain\nmore", "plain"),
        ("line 3 in forward: x = y\nline 4: z\nValueError: w", "ValueError: w"),
        ("line 3 in forward: x = y", "x = y"),
        ("| quoted\n\nk.cpp line 7 (in f): bad", "bad"),
        ("x" * 400, "x" * MAX_CHARS),
    ],
)
def test_the_message_of_a_fault_has_no_place(feedback, message):
    assert message_of(feedback) == message


def improve(store: Store, run, speedups, archive=None) -> None:
    """A line of programs, each made of the one before."""
    archive = archive or SmallArchive(places=99)
    for number, speedup in enumerate(speedups, start=1):
        parents = (program(number - 1).digest,) if number > 1 else ()
        note = f"step {number}" if number > 1 else ""
        proposal = Proposal(
            program=program(number), assignment={"B": number}, parents=parents, note=note
        )
        ticket = store.record(run.id, "edit", parents, proposal)
        store.start_evaluation(ticket)
        judged = evaluation(speedup)
        ticket = store.evaluated(ticket, judged)
        candidate = elite(ticket, judged)
        store.tell(ticket, candidate, archive.offer(candidate, number))


def test_the_best_program_and_the_steps_that_gained_most_are_ideas(store):
    run = run_of(store, "first")
    improve(store, run, [1.0, 1.2, 1.21, 1.5, 1.4, 2.0, 4.0])
    ideas = found(store, run)
    assert ideas[0][1].startswith("best program, 4.00x")
    assert ideas[0][1].endswith(", not verified: run first, task norm, cpu-test, made by edit")
    assert ideas[0][2] == "step 7\nB=7"
    assert [words for _, _, words in ideas[1:]] == ["step 7", "step 6", "step 4"]
    assert ideas[1][1].startswith("2.00x as fast as what it was made from (95 % interval 1.9")
    assert ideas[1][1].endswith(", indirect): run first, task norm, cpu-test")


def test_runs_without_a_program_have_no_ideas(store):
    assert found(store, run_of(store, "first")) == []


def test_the_last_summary_with_words_is_a_skill(store):
    run = run_of(store, "first")
    for text in ("old", "The loop is the limit.", " "):
        request = ModelRequest(messages=(Message("user", text),), purpose=SUMMARY)
        (ticket,) = store.request(run.id, SUMMARY, (), request, "some/model")
        reply = ModelReply(status=CallStatus.COMPLETED, text=text)
        store.propose(store.answer(ticket, reply), Failed("a summary"), ReplyStatus.STEP)
    skills = [each for each in found(store, run, seen=9) if each[0] is Kind.SKILL]
    about = "summary that a model wrote of run first, task norm, "
    assert skills == [(Kind.SKILL, about, "The loop is the limit.")]


def test_only_the_newest_runs_on_the_same_kind_of_operation_are_looked_at(store):
    other = Task(name="other", source="class Model: ...")
    assert operation_kind(NORM) == operation_kind(replace(NORM, name="another"))
    assert operation_kind(other) == "task other"
    runs = [run_of(store, name, task) for name, task in (("a", NORM), ("b", other), ("c", NORM))]
    for number, run in enumerate(runs, start=1):
        fail(store, run, number, Status.TIMEOUT, f"run {'abc'[number - 1]}")
    assert [text for _, text in rules_of(store, *runs, seen=1)] == ["run a", "run c"]
    assert [text for _, text in rules_of(store, *runs, seen=1, runs=1)] == ["run c"]
    assert found(store, *runs, seen=1, runs=0) == []


def test_findings_that_do_not_fit_are_left_out_whole(store):
    run = run_of(store, "first")
    fail(store, run, 1, Status.TIMEOUT, "a" * 290)
    fail(store, run, 2, Status.WRONG_VALUE, "b")
    assert [text[0] for _, text in rules_of(store, run, seen=1)] == ["a", "b"]
    assert [text for _, text in rules_of(store, run, seen=1, tokens=60)] == ["b"]
    assert rules_of(store, run, seen=1, tokens=0) == []


@pytest.mark.parametrize(("name", "least"), [("runs", 0), ("seen", 1), ("tokens", 0)])
def test_settings_out_of_range_are_refused(name, least):
    Recall(**{name: least})
    with pytest.raises(UsageError, match=rf"memory\.{name}"):
        Recall(**{name: least - 1})
