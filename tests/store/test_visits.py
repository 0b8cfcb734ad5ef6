"""Invariants of visits:

1. A told ticket counts at its main parent and its next 64 ancestors, no further.
2. Only what was really selected first counts, and the first answer on a program's parent stands.
3. What is no fault of a program is not its failure.
4. The line of what is held goes up to its first ancestor, held or not.
5. The best of a subtree is that of what is known by now, all the way up: it falls where a lucky
   program is measured again, or refuted.
"""

import math
from dataclasses import replace

import pytest

from evolve.core.elites import Visits
from evolve.core.evaluation import Fidelity, Status
from evolve.core.measurement import Interval
from evolve.core.protocols import AddStatus, Failed, Offer, Proposal
from evolve.store import Store
from evolve.store.tables.parent_stats import GENERATIONS
from tests.store.facts import SmallArchive, evaluation, new_run, program, take_step
from tests.store.servers import ON_A_SERVER

BACK_ENDS = ("sqlite", ON_A_SERVER)


@pytest.mark.sample(1)
def test_a_ticket_counts_so_many_generations_up(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    depth = GENERATIONS + 5
    for number in range(1, depth + 1):
        parents = (program(number - 1).digest,) if number > 1 else ()
        take_step(store, run, archive, number, parents=parents)
    line = store.visits(run, program(depth).digest)
    assert list(line) == [program(number).digest for number in range(depth, depth - 65, -1)]
    assert line[program(depth - 1).digest].subtree == 1
    assert line[program(depth - 64).digest].subtree == 64
    first = store.visits(run, program(1).digest)[program(1).digest]
    assert (first.told, first.subtree) == (1, GENERATIONS + 1)


def test_values_are_summed_and_the_best_is_kept(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    take_step(store, run, archive, 1)
    root = program(1).digest
    for number, speedup in ((2, 1.5), (3, 1.2), (4, None), (5, 2.0), (6, 1.9)):
        status = Status.CORRECT if speedup else Status.WRONG_VALUE
        judged = evaluation(speedup, status=status, custom=True if speedup else None)
        take_step(store, run, archive, number, parents=(root,), judged=judged)
    visits = store.visits(run, root)[root]
    logs = [math.log(speedup) for speedup in (1.5, 1.2, 2.0, 1.9)]
    assert visits.value == pytest.approx(sum(logs))
    assert visits.best == pytest.approx(math.log(2.0))
    assert (visits.asked, visits.told, visits.failed) == (5, 5, 1)
    assert (visits.subtree, visits.scored, visits.stale) == (5, 4, 1)


@pytest.mark.parametrize(
    ("judged", "failed"),
    [
        (evaluation(None, status=Status.WRONG_VALUE, custom=None), 1),
        (evaluation(1.5, custom=False), 1),
        (evaluation(None, status=Status.INFRA, custom=None), 0),
        (evaluation(None, status=Status.TIMING_UNBOUNDED, custom=None), 0),
        (evaluation(1.5, fidelity=Fidelity.SCREEN), 0),
    ],
)
def test_what_a_failure_is(store: Store, judged, failed: int) -> None:
    run, archive = new_run(store).id, SmallArchive()
    take_step(store, run, archive, 1)
    root = program(1).digest
    ticket = store.ask(run, "tune", (root,))
    proposal = Proposal(program=program(2), parents=(root,), fidelity=judged.fidelity)
    ticket = store.evaluated(store.propose(ticket, proposal), judged)
    store.tell(ticket, None, None)
    expected = Visits(asked=1, told=1, failed=failed, subtree=1, stale=1)
    assert store.visits(run, root) == {root: expected}


def test_a_proposal_that_failed_counts_at_the_selected_parent(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    for number in (1, 2):
        take_step(store, run, archive, number)
    first, second = program(1).digest, program(2).digest
    store.record(run, "edit", (first, second), Failed("no code"))
    assert store.visits(run, first)[first].failed == 1
    assert store.visits(run, second)[second] == Visits()


def test_a_ticket_under_way_is_pending_all_the_way_up_until_it_is_told(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    for number in (1, 2, 3):
        parents = (program(number - 1).digest,) if number > 1 else ()
        take_step(store, run, archive, number, parents=parents)
    root, _, leaf = (program(number).digest for number in (1, 2, 3))
    tickets = [store.ask(run, "edit", (leaf,)) for _ in range(2)]
    assert [each.pending for each in store.visits(run, leaf).values()] == [2, 2, 2]
    assert store.held_visits(run)[root].pending == 2
    store.propose(tickets[0], Failed("no code"))
    assert [each.pending for each in store.visits(run, leaf).values()] == [1, 1, 1]
    assert store.visits(run, root)[root].subtree == 3


def know(store: Store, run: int, number: int, value: float, *, evaluations: int = 2) -> None:
    """Program `number` is measured again, and known by this value from then on."""
    ticket = store.record(
        run, "remeasure", (), Proposal(program=program(number), is_reevaluation=True)
    )
    judged = evaluation(math.exp(value))
    ticket = store.evaluated(ticket, judged)
    known = store.elite(run, program(number).digest)
    assert known is not None
    now = replace(known, fitness=Interval(value, value, value), evaluations=evaluations)
    store.tell(ticket, now, Offer(AddStatus.NOT_ADDED))


def best_of_line(store: Store, run: int, number: int) -> list[float | None]:
    return [visits.best for visits in store.visits(run, program(number).digest).values()]


@pytest.fixture
def family(store: Store) -> int:
    """A run of 1 with children 2 (0.9) and 3 (0.6), and of 2 a child 4 (0.8)."""
    run, archive = new_run(store).id, SmallArchive()
    take_step(store, run, archive, 1)
    for number, parent, value in ((2, 1, 0.9), (3, 1, 0.6), (4, 2, 0.8)):
        judged = evaluation(math.exp(value))
        take_step(store, run, archive, number, parents=(program(parent).digest,), judged=judged)
    return run


def test_the_best_falls_to_what_is_known_by_now(store: Store, family: int) -> None:
    assert best_of_line(store, family, 2) == pytest.approx([0.8, 0.9])
    know(store, family, 2, 0.45)
    assert best_of_line(store, family, 2) == pytest.approx([0.8, 0.8])
    know(store, family, 4, 0.3)
    assert best_of_line(store, family, 2) == pytest.approx([0.3, 0.6])
    know(store, family, 2, 0.7)
    assert best_of_line(store, family, 4)[1:] == pytest.approx([0.3, 0.7])


def test_what_is_refuted_is_nobodys_best(store: Store, family: int) -> None:
    know(store, family, 4, 0.8, evaluations=0)
    assert best_of_line(store, family, 2) == [None, pytest.approx(0.9)]
    know(store, family, 2, 0.9, evaluations=0)
    assert best_of_line(store, family, 2) == [None, pytest.approx(0.6)]


def test_held_programs_are_linked_to_their_ancestors_through_those_not_held(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive(places=1)
    for number, parent, value in ((1, 0, 0.5), (2, 1, 0.1), (3, 2, 0.2), (4, 3, 0.9), (5, 1, 0.01)):
        parents = (program(parent).digest,) if parent else ()
        judged = evaluation(math.exp(value))
        take_step(store, run, archive, number, parents=parents, judged=judged)
    digests = {program(number).digest: number for number in range(1, 6)}
    held = {digests[elite.program] for elite in store.slots(run).values()}
    assert held == {4}
    links = {digests[one]: digests[other] for one, other in store.held_links(run).items()}
    assert links == {4: 3, 3: 2, 2: 1}


def test_a_fall_is_no_step_and_a_rise_ends_a_stall(store: Store, family: int) -> None:
    root = program(1).digest
    before = store.visits(family, root)[root]
    assert (before.subtree, before.stale) == (3, 2)
    know(store, family, 2, 0.45)
    assert store.visits(family, root)[root].stale == 2
    know(store, family, 4, 1.5)
    after = store.visits(family, root)[root]
    assert (after.subtree, after.stale, after.asked) == (3, 0, before.asked)


def test_a_program_that_its_own_tickets_tuned_is_its_own_best(store: Store) -> None:
    run, archive = new_run(store).id, SmallArchive()
    take_step(store, run, archive, 1)
    root = program(1).digest
    assert best_of_line(store, run, 1) == [None]
    ticket = store.ask(run, "tune", (root,))
    ticket = store.propose(ticket, Proposal(program=program(1), assignment={"BLOCK": 2}))
    ticket = store.evaluated(ticket, evaluation(math.exp(0.9)))
    known = store.elite(run, root)
    assert known is not None
    now = replace(known, fitness=Interval(0.9, 0.9, 0.9), assignment={"BLOCK": 2})
    store.tell(ticket, now, Offer(AddStatus.NOT_ADDED))
    assert best_of_line(store, run, 1) == pytest.approx([0.9])
    know(store, run, 1, 0.2)
    assert best_of_line(store, run, 1) == pytest.approx([0.2])


def test_runs_of_one_file_are_counted_apart(store: Store) -> None:
    runs = [new_run(store, name).id for name in ("one", "two")]
    root = program(1).digest
    for run in runs:
        archive = SmallArchive()
        take_step(store, run, archive, 1)
        take_step(store, run, archive, 2, parents=(root,))
    assert [store.visits(run, root)[root].told for run in runs] == [1, 1]
