"""Invariants of measuring again:

1. Whoever takes the lead is confirmed; what is clear already is not measured again.
2. What is measured is what promises most, and that promise shrinks with every evaluation.
3. It ends: by worth, by share, by number, and while an evaluation is under way.
4. In a search under noise the leader is measured several times, and closer to the truth.
"""

import math
from dataclasses import replace

import pytest

from archives import TopK
from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Interval, Ratio
from evolve.core.program import Program
from evolve.core.protocols import Declined, Elite, Proposal
from evolve.search.schedule import Scheduled
from evolve.testing.operators import OperatorConformance
from evolve.testing.parts import MemoryFacts, make_context
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, true_speedup
from operators.local.remeasure import Remeasure, worth_of
from tests.search.conftest import make_search, run_to_end, variants


class TestConformance(OperatorConformance):
    def make(self):
        return Remeasure()

    def contexts(self, parents=None):
        for context in super().contexts(parents=1):
            yield replace(context, elites=context.parents, parents=())


def population(facts: MemoryFacts, *values: tuple[float, int], width: float = 0.02) -> list[Elite]:
    """Elites of the given fitness and number of evaluations, best first."""
    elites = []
    for number, (value, evaluations) in enumerate(values):
        program = Program(f"{SEED_SOURCE}\nNUMBER = {number}\n")
        for _ in range(evaluations):
            elite = facts.judge(program)
        fitness = Interval(value, value - width, value + width)
        elites.append(replace(elite, fitness=fitness, evaluations=evaluations))
    return sorted(elites, key=lambda elite: -elite.fitness.value)


def propose(operator: Remeasure, facts: MemoryFacts, elites, sequence: int = 50):
    return operator.propose(make_context(facts, elites=elites, sequence=sequence, operator="again"))


def test_a_new_leader_is_confirmed():
    facts = MemoryFacts()
    elites = population(facts, (0.9, 1), (0.1, 3))
    answer = propose(Remeasure(share=0.0), facts, elites)
    assert answer.is_reevaluation
    assert answer.fidelity is Fidelity.SEARCH
    assert answer.program.digest == elites[0].program
    assert answer.assignment == elites[0].assignment
    assert "confirms" in answer.note


def test_a_confirmed_leader_that_is_clear_is_left_alone():
    facts = MemoryFacts()
    elites = population(facts, (0.9, 2), (0.1, 1), (0.05, 1))
    assert isinstance(propose(Remeasure(), facts, elites), Declined)


def test_of_two_that_could_lead_the_less_known_is_measured():
    facts = MemoryFacts()
    elites = population(facts, (0.50, 5), (0.499, 1), (0.1, 1))
    elites[0] = replace(elites[0], fitness=Interval(0.50, 0.495, 0.505))
    answer = propose(Remeasure(), facts, elites)
    assert answer.program.digest == elites[1].program


def test_a_cheaper_evaluation_is_preferred():
    facts = MemoryFacts()
    elites = population(facts, (0.5, 2), (0.49, 2), (0.49, 2), width=0.05)
    dear, cheap = sorted(elites[1:], key=lambda elite: elite.program)
    for elite, seconds in ((dear, 30.0), (cheap, 1.0), (elites[0], 30.0)):
        kept = facts._evaluations[elite.program]
        facts._evaluations[elite.program] = [replace(e, device_time_s=seconds) for e in kept]
    assert propose(Remeasure(), facts, elites).program.digest == cheap.program


def test_worth_falls_with_the_gap_and_rises_with_the_doubt():
    facts = MemoryFacts()

    def worth(gap: float, width: float, evaluations: int = 2) -> float:
        elites = population(facts, (0.5, 2), (0.5 - gap, evaluations), width=width)
        return worth_of(elites, 1)

    gaps = [worth(gap, 0.02) for gap in (0.0, 0.01, 0.02, 0.05)]
    assert gaps == sorted(gaps, reverse=True)
    widths = [worth(0.01, width) for width in (0.005, 0.02, 0.1)]
    assert widths == sorted(widths)
    known = [worth(0.01, 0.02, evaluations) for evaluations in (1, 2, 5)]
    assert known == sorted(known, reverse=True)
    # Equal means: the standard deviation of the change over sqrt(2 pi).
    shift = 0.02 / 1.96 / math.sqrt(1 + 2)
    assert gaps[0] == pytest.approx(shift / math.sqrt(2 * math.pi))


def test_it_waits_while_the_evaluation_is_under_way():
    facts = MemoryFacts()
    elites = population(facts, (0.5, 1))
    facts.pend(Program(facts.source(elites[0].program)))
    assert isinstance(propose(Remeasure(), facts, elites), Declined)


def test_evaluations_that_fail_by_our_own_fault_do_not_go_on_for_ever():
    facts = MemoryFacts()
    elites = population(facts, (0.5, 6))
    unchanged = [replace(elites[0], evaluations=1)]
    assert isinstance(propose(Remeasure(most=6), facts, unchanged), Declined)
    assert isinstance(propose(Remeasure(most=7), facts, unchanged), Proposal)


def test_the_share_bounds_what_is_no_confirmation_under_any_name():
    facts = MemoryFacts()
    elites = population(facts, (0.50, 2), (0.499, 2), width=0.1)
    for number in range(5):
        facts.fail(f"step {number}", operator="again")
    assert isinstance(propose(Remeasure(share=0.1), facts, elites, sequence=50), Declined)
    assert isinstance(propose(Remeasure(share=0.1), facts, elites, sequence=51), Proposal)


def test_a_leader_is_confirmed_beyond_the_share():
    facts = MemoryFacts()
    elites = population(facts, (0.50, 1), (0.499, 2), width=0.1)
    for number in range(50):
        facts.fail(f"step {number}", operator="again")
    assert "confirms" in propose(Remeasure(share=0.1), facts, elites).note


@pytest.mark.parametrize(
    "wrong", [{"confirm": 0}, {"least": -1}, {"share": 2}, {"most": 1}, {"breadth": 1.5}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match=rf"operators\.\*\.{next(iter(wrong))}"):
        Remeasure(**wrong)


class Honest(SyntheticEvaluator):
    """Says how noisy it is."""

    def judge(self, request):
        verdict = super().judge(request)
        value, factor = verdict.ratios["eager"].value, math.exp(1.96 * self.noise)
        return replace(verdict, ratios={"eager": Ratio(value, value / factor, value * factor)})


@pytest.mark.slow
def test_under_noise_the_leader_is_not_the_luckiest(store, run):
    def leader(name: str, **more: Scheduled) -> Elite:
        which = store.create_run(name=name, task=run.task, config=dict(run.config), seed=3)
        search = make_search(
            store, which, archive=TopK(capacity=50), operators=variants() | dict(more)
        )
        run_to_end(search, Honest(noise=0.1), evaluations=40)
        return search.leader

    truth = math.log(true_speedup(SEED_SOURCE))  # of all forty programs
    naive, sober = leader("naive"), leader("sober", remeasure=remeasure())
    assert naive.fitness.value - truth > 0.2
    assert sober.fitness.value < naive.fitness.value - 0.05
    assert sober.evaluations > 1


def remeasure() -> Scheduled:
    return Scheduled(operator=Remeasure(share=0.5), weight=math.inf)
