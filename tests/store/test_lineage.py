"""Invariants.

1. A step says what happened, also while it is under way.
2. Ancestors are every program on a way to the first, each by the step that produced it first.
"""

from dataclasses import replace

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Status
from evolve.core.model import (
    CallStatus,
    Message,
    ModelReply,
    ModelRequest,
    Reservation,
    Usage,
)
from evolve.core.protocols import AddStatus, Failed, Proposal
from evolve.store import Store
from tests.store.facts import SmallArchive, evaluation, new_run, program, ratio, take_step
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)


def test_a_step_tells_the_whole_story_without_texts(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()
    take_step(store, run, archive, 1, judged=evaluation(1.1))
    parents = (program(1).digest,)
    judged = evaluation(1.5, device_time_s=0.5)
    take_step(store, run, archive, 5, parents=parents, assignment={"B": 8}, judged=judged)
    step = store.step(run, 1)
    assert step == list(store.steps(run))[1]
    assert (step.operator, step.parents) == ("tune", parents)
    assert (step.program, step.assignment) == (program(5).digest, {"B": 8})
    assert (step.status, step.custom, step.labels) == (Status.CORRECT, True, ("plain_loop",))
    assert step.ratios == {"eager": ratio(1.5), "elite": ratio(1.0)}
    assert (step.offer, step.slot, step.evicted) == (AddStatus.IMPROVED, "place1", parents[0])
    assert step.device_time_s == 0.5


def test_a_step_says_what_it_cost_and_where_it_was_judged(store: Store) -> None:
    run = new_run(store).id
    judged = replace(
        evaluation(1.5),
        environment={"judge": "GPU 1"},
        durations_s={"compile": 2.0, "timing": 1.0, "timing_lock": 0.5},
    )
    take_step(store, run, SmallArchive(), 1, judged=judged)
    request = ModelRequest(messages=(Message("user", "faster"),))
    for cost, worst in ((0.25, 0.5), (None, None)):  # the second has no price
        (ticket,) = store.request(run, "rewrite", (), request, "some/model")
        call = store.begin_call(ticket, Reservation(tokens=100, usd=worst))
        usage = Usage(prompt=30, completion=20)
        reply = ModelReply(status=CallStatus.COMPLETED, text="no", usage=usage, cost_usd=cost)
        store.end_call(call, reply)
    free, paid, unknown = store.steps(run)
    assert (free.usd, free.judge, free.judged_s) == (0.0, "GPU 1", 3.0)
    assert (paid.usd, paid.judge, paid.judged_s) == (0.25, "", 0.0)
    assert unknown.usd is None


def test_the_whole_evaluation_of_a_step_is_that_of_its_own_run(store: Store) -> None:
    runs = [new_run(store, name).id for name in ("one", "two")]
    for number, run in enumerate(runs):
        judged = replace(evaluation(1.5 + number), feedback=f"of run {number}")
        take_step(store, run, SmallArchive(), number, judged=judged)
        store.ask(run, "tune", ())
    for number, run in enumerate(runs):
        whole = store.evaluation(run, 0)
        assert (whole.feedback, whole.ratios["eager"]) == (f"of run {number}", ratio(1.5 + number))
        assert store.evaluation(run, 1) is None  # not yet
        with pytest.raises(UsageError, match="no step 2; it has 0 to 1"):
            store.evaluation(run, 2)


def test_steps_under_way_are_steps_too(store: Store) -> None:
    run = new_run(store).id
    take_step(store, run, SmallArchive(), 1)
    chosen = (program(1).digest,)
    store.ask(run, "recombine", chosen)
    store.propose(store.ask(run, "tune", chosen), Failed("nothing left to tune"))
    store.propose(store.ask(run, "tune", chosen), Proposal(program=program(2)))
    asked, failed, proposed = list(store.steps(run))[1:]
    assert (asked.program, asked.parents, asked.status) == (None, chosen, None)
    assert (failed.failure, failed.parents) == ("nothing left to tune", chosen)
    assert (proposed.program, proposed.parents) == (program(2).digest, ())


def test_a_step_that_is_not_there_names_those_that_are(store: Store) -> None:
    run = new_run(store).id
    with pytest.raises(UsageError, match="run 'first' has no step 0; it has none yet"):
        store.step(run, 0)
    take_step(store, run, SmallArchive(), 1)
    with pytest.raises(UsageError, match="no step 7; it has 0 to 0"):
        store.evaluation(run, 7)


def test_ancestors_are_the_first_steps_of_every_program_on_the_way(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()

    def make(number: int, *parents: int, **assignment: int) -> None:
        digests = tuple(program(parent).digest for parent in parents)
        take_step(store, run, archive, number, parents=digests, assignment=assignment)

    make(1)
    make(2)
    make(3, 1)
    make(1, 1, B=4)  # tuned: the same program again, its own parent
    make(9)  # nobody's ancestor
    make(4, 3, 2)
    make(2, 4, B=8)  # an ancestor made again from its descendant
    make(5, 4)
    make(6, 4)  # a sibling
    assert [step.sequence for step in store.ancestors(run, program(5).digest)] == [0, 1, 2, 5, 7]
    assert [step.sequence for step in store.ancestors(run, program(1).digest)] == [0]


@pytest.mark.slow
def test_a_long_line_is_followed_to_its_root(store: Store) -> None:
    run = new_run(store).id
    archive = SmallArchive()
    for number in range(1, 601):
        parents = (program(number - 1).digest,) if number > 1 else ()
        take_step(store, run, archive, number, parents=parents)
    line = store.ancestors(run, program(600).digest)
    assert [step.program for step in line] == [program(n).digest for n in range(1, 601)]


def test_lines_of_different_runs_do_not_mix(store: Store) -> None:
    one, two = new_run(store, "one").id, new_run(store, "two").id
    take_step(store, one, SmallArchive(), 1)
    take_step(store, one, SmallArchive(), 2, parents=(program(1).digest,))
    take_step(store, two, SmallArchive(), 2)
    assert [step.program for step in store.ancestors(two, program(2).digest)] == [program(2).digest]
    assert store.ancestors(two, program(1).digest) == []


def test_a_step_without_a_verdict_has_cost_nothing_and_has_no_finding(store: Store) -> None:
    run = new_run(store).id
    store.ask(run, "seed", ())
    step = store.step(run, 0)
    assert (step.device_time_s, step.judged_s, step.usd) == (0.0, 0.0, 0.0)
    assert (step.status, step.custom, step.ratios, step.labels) == (None, None, {}, ())
    assert (step.program, step.offer, step.slot, step.judge) == (None, None, None, "")
