"""The winner of a run.

Invariants:
1. Only a verification crowns; a verification that finds fault takes the crown away.
2. A duel decides between two that could have won; without one the higher ratio.
3. Without any verification the best elite that is not refuted stands for the winner.
"""

from dataclasses import replace

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.core.measurement import Ratio
from evolve.core.program import instance_digest
from evolve.core.protocols import Proposal
from evolve.store import Store
from evolve.store.champion import (
    CHAMPION,
    RUNNER_UP,
    best_path,
    champion,
    refuted_instances,
    verified_instances,
)
from tests.store.facts import SmallArchive, evaluation, new_run, program, ratio, take_step

GAIN, TIE, LOSS = Ratio(1.2, 1.1, 1.3), Ratio(1.1, 0.9, 1.3), Ratio(0.8, 0.7, 0.9)


@pytest.fixture
def run(store: Store):
    """A run with three elites, whose speedups are 1.5, 2.0 and 1.8."""
    found, archive = new_run(store), SmallArchive()
    for number, speedup in ((1, 1.5), (2, 2.0), (3, 1.8)):
        parents = (program(number - 1).digest,) if number > 1 else ()
        judged = evaluation(speedup)
        take_step(store, found.id, archive, number, parents=parents, judged=judged)
    return found


def verify(store: Store, run, number: int, speedup: float | None, **duels: Ratio) -> None:
    """A verification of a program; None: it finds a wrong value."""
    judged = evaluation(None, status=Status.WRONG_VALUE, fidelity=Fidelity.VERIFY)
    if speedup is not None:
        ratios = {"eager": ratio(speedup)} | duels
        judged = evaluation(fidelity=Fidelity.VERIFY, ratios=ratios)
    judge(store, run, number, judged)


def judge(store: Store, run, number: int, judged) -> None:
    proposal = Proposal(
        program=program(number), fidelity=Fidelity.VERIFY, parents=(program(number).digest,)
    )
    ticket = store.record(run.id, VERIFY, proposal.parents, proposal)
    store.start_evaluation(ticket)
    store.tell(store.evaluated(ticket, judged), None, None)


def winner(store: Store, run) -> int | None:
    found = champion(store, run)
    names = {program(number).digest: number for number in range(9)}
    return None if found is None else names[found.program]


def test_without_a_verification_the_best_elite_stands_for_the_winner(store, run):
    found = champion(store, run)
    assert (found.program, found.sequence, found.verified) == (program(2).digest, 1, False)
    assert found.ratio.value == pytest.approx(2.0)
    assert found.instance == instance_digest(program(2).digest, {})
    assert champion(store, run, held=()) is None
    held = [each for each in store.slots(run.id).values() if each.sequence != 1]
    assert champion(store, run, held).program == program(3).digest


def test_a_run_without_elites_has_no_winner(store):
    run = new_run(store)
    assert (champion(store, run), best_path(store, run)) == (None, [])


def test_a_verified_program_wins_also_with_a_lower_ratio_than_measured(store, run):
    verify(store, run, 1, 1.2)
    found = champion(store, run)
    assert (found.program, found.sequence, found.verified) == (program(1).digest, 3, True)
    assert found.ratio == ratio(1.2)
    assert verified_instances(store, run) == {found.instance}
    assert refuted_instances(store, run) == set()


def test_the_path_leads_over_the_main_ancestors_to_the_winner(store, run):
    assert best_path(store, run) == [0, 1]
    verify(store, run, 3, 1.9)
    assert best_path(store, run) == [0, 1, 2]


def test_a_refuted_program_does_not_win(store, run):
    verify(store, run, 2, None)
    assert winner(store, run) == 3
    assert refuted_instances(store, run) == {instance_digest(program(2).digest, {})}
    verify(store, run, 3, None)
    verify(store, run, 1, None)
    assert winner(store, run) is None


def test_a_refutation_takes_the_crown_of_that_program_only(store, run):
    verify(store, run, 2, 1.9)
    verify(store, run, 3, None)
    assert winner(store, run) == 2
    verify(store, run, 2, None)
    assert winner(store, run) == 1


@pytest.mark.parametrize("flaw", ["custom", "baseline", "infra"])
def test_a_verification_without_a_ratio_of_custom_kernels_crowns_none(store, run, flaw):
    good = evaluation(1.9, fidelity=Fidelity.VERIFY)
    judged = {
        "custom": replace(good, custom=False),
        "baseline": replace(good, ratios={"compile": ratio(1.9)}),
        "infra": replace(good, ratios={}, status=Status.INFRA),
    }[flaw]
    judge(store, run, 2, judged)
    found = {instance_digest(program(2).digest, {})}
    assert refuted_instances(store, run) == (set() if flaw == "infra" else found)
    assert winner(store, run) == (2 if flaw == "infra" else 3)


@pytest.mark.parametrize(
    ("speedup", "duel", "wins"),
    [
        (1.9, {}, True),
        (1.7, {}, False),
        (1.8, {}, False),
        (1.7, {CHAMPION: GAIN}, True),
        (1.9, {CHAMPION: TIE}, False),
        (1.9, {CHAMPION: LOSS}, False),
    ],
)
def test_a_challenger_wins_its_duel_or_by_the_higher_ratio_without_one(
    store, run, speedup, duel, wins
):
    verify(store, run, 2, 1.8)
    verify(store, run, 3, speedup, **duel)
    assert winner(store, run) == (3 if wins else 2)


@pytest.mark.parametrize(("duel", "wins"), [(GAIN, True), (TIE, True), (LOSS, False)])
def test_a_contender_that_loses_to_the_runner_up_leaves_the_crown_to_it(store, run, duel, wins):
    verify(store, run, 2, 1.9, **{RUNNER_UP: duel})
    assert winner(store, run) == 2  # the only verified one
    verify(store, run, 1, 1.5)
    assert winner(store, run) == (2 if wins else 1)


def test_a_champion_that_is_verified_again_keeps_the_crown_with_its_new_ratio(store, run):
    verify(store, run, 2, 1.9)
    verify(store, run, 2, 1.7)
    assert champion(store, run).ratio == ratio(1.7)
