"""Invariants.

1. What was put in comes out equal: sources, assignments, whole evaluations.
2. Facts of a run are its own; sources and cached evaluations are the database's.
"""

import pytest

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program, instance_digest
from evolve.core.protocols import Failed, Proposal, Trial
from evolve.store import Store
from tests.store.facts import TASK, SmallArchive, evaluation, new_run, program, ratio, take_step
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)


def test_a_source_comes_back_to_the_letter(store: Store) -> None:
    run = new_run(store).id
    for text in ("", "x", "# größer ≥ \U0001f980\n\tpass\r\n" * 300, "\x00\x01"):
        store.propose(store.ask(run, "seed", ()), Proposal(program=Program(text)))
        assert store.source(Program(text).digest) == text


def test_an_unknown_program_is_named(store: Store) -> None:
    for digest in (program(1).digest, "abc", ""):
        with pytest.raises(UsageError, match=f"no program '{digest}'"):
            store.source(digest)


def test_a_whole_evaluation_comes_back_equal(store: Store) -> None:
    run = new_run(store).id
    for sequence, judged in enumerate(
        (
            evaluation(1.25),
            evaluation(None, status=Status.WRONG_VALUE, custom=None),
            evaluation(2.0, fidelity=Fidelity.VERIFY, custom=False),
        )
    ):
        take_step(store, run, SmallArchive(), sequence + 1, judged=judged)
        assert store.evaluation(run, sequence) == judged


def test_trials_are_every_instance_that_was_asked_for(store: Store) -> None:
    run, other = new_run(store).id, new_run(store, "other").id
    take_step(store, run, SmallArchive(), 1, assignment={"B": 1}, judged=evaluation(1.5))
    take_step(store, other, SmallArchive(), 1, assignment={"B": 9})
    failing = evaluation(None, status=Status.COMPILE_ERROR)
    take_step(store, run, SmallArchive(), 1, assignment={"B": 2}, judged=failing)
    pending = Proposal(program=program(1), assignment={"B": 4}, fidelity=Fidelity.SCREEN)
    store.propose(store.ask(run, "tune", ()), pending)
    assert store.trials(run, program(1).digest) == [
        Trial(
            assignment={"B": 1}, fidelity=Fidelity.SEARCH, status=Status.CORRECT, ratio=ratio(1.5)
        ),
        Trial(
            assignment={"B": 2}, fidelity=Fidelity.SEARCH, status=Status.COMPILE_ERROR, ratio=None
        ),
        Trial(assignment={"B": 4}, fidelity=Fidelity.SCREEN, status=None, ratio=None),
    ]
    assert store.trials(run, program(2).digest) == []


def test_an_instance_is_seen_as_soon_as_it_is_proposed(store: Store) -> None:
    run, other = new_run(store).id, new_run(store, "other").id
    digest = instance_digest(program(1).digest, {"B": 1})
    ticket = store.ask(run, "tune", ())
    assert not store.seen(run, digest)
    store.propose(ticket, Proposal(program=program(1), assignment={"B": 1}))
    assert store.seen(run, digest)
    assert not store.seen(other, digest)
    assert not store.seen(run, instance_digest(program(1).digest, {}))


def test_proposals_are_counted_by_operator_failures_included(store: Store) -> None:
    run = new_run(store).id
    store.propose(store.ask(run, "tune", ()), Proposal(program=program(1)))
    store.propose(store.ask(run, "tune", ()), Failed("seen"))
    store.propose(store.ask(run, "seed", ()), Proposal(program=program(2)))
    store.ask(run, "seed", ())
    assert (store.proposals(run, "tune"), store.proposals(run, "seed")) == (2, 1)
    assert store.proposals(run, "never") == 0


def test_an_identical_evaluation_of_any_run_is_found(store: Store) -> None:
    run = new_run(store).id
    judged = evaluation(1.5)
    broken = evaluation(None, status=Status.INFRA)
    take_step(store, run, SmallArchive(), 1, assignment={"B": 1}, judged=judged)
    take_step(store, run, SmallArchive(), 2, judged=broken)
    key = (instance_digest(program(1).digest, {"B": 1}), TASK.revision, "cpu-test", "7", "search")
    assert store.cached(*key) == judged
    for place in range(5):
        changed = [*key]
        changed[place] = program(3).digest if place == 0 else "other"
        assert store.cached(*changed) is None
    ours = (instance_digest(program(2).digest, {}), TASK.revision, "cpu-test", "7", "search")
    assert store.cached(*ours) is None  # our own fault is no verdict
    noisy = evaluation(None, status=Status.TIMING_UNBOUNDED)
    take_step(store, run, SmallArchive(), 3, judged=noisy)
    then = (instance_digest(program(3).digest, {}), TASK.revision, "cpu-test", "7", "search")
    assert store.cached(*then) is None  # the host was too noisy, which it need not be again


def test_a_program_that_differs_in_layout_only_is_found(store: Store) -> None:
    run, other = new_run(store).id, new_run(store, "other").id
    take_step(store, run, SmallArchive(), 1)
    relaid = Program(program(1).source.replace("\n\n\n", "\n\n\n# the same\n"))
    assert store.near_duplicate_of(run, relaid) == program(1).digest
    assert store.near_duplicate_of(run, program(1)) is None  # itself
    assert store.near_duplicate_of(run, program(2)) is None
    assert store.near_duplicate_of(other, relaid) is None


def test_the_steps_of_an_operator_are_listed_in_order(store: Store) -> None:
    run = new_run(store).id
    for number in range(1, 8):
        take_step(store, run, SmallArchive(), number)
    assert store.made_by(run, "seed") == [2, 5]
    assert store.made_by(run, "never") == []
    assert store.next_sequence(run) == 7


def test_a_run_answers_for_its_own_evaluations_at_their_fidelity(store: Store) -> None:
    run, other = new_run(store).id, new_run(store, "other").id
    with pytest.raises(UsageError, match="holds no evaluation"):
        store.judge(run)
    screened = evaluation(1.4, fidelity=Fidelity.SCREEN)
    proposal = Proposal(program=program(1), fidelity=Fidelity.SCREEN)
    ticket = store.propose(store.ask(run, "tune", ()), proposal)
    store.tell(store.evaluated(ticket, screened), None, None)
    digest = instance_digest(program(1).digest, {})
    assert store.recorded(run, digest, Fidelity.SCREEN) == screened
    assert store.recorded(run, digest, Fidelity.SEARCH) is None
    assert store.recorded(other, digest, Fidelity.SCREEN) is None
    assert store.judge(run) == ("cpu-test", "7")
