"""Verdicts, and what follows from one.

Invariants:
1. Only a correct evaluation has ratios, and only one by custom kernels has a fitness.
2. Words that former versions stored are read as the present ones.
3. A failure of the judge is worth another try, unless it was retried alone already.
"""

import math
from dataclasses import replace

import pytest

from evolve.core.evaluation import (
    DEVICE_BUSY,
    DEVICE_OOM,
    EARLY_STOPPED,
    OPPONENT_FAILED,
    CaseSamples,
    Evaluation,
    Fidelity,
    Label,
    Stage,
    Status,
    stages_s,
)
from evolve.core.measurement import Interval, Ratio

CORRECT = Evaluation(
    status=Status.CORRECT,
    stage=Stage.TIMING,
    fidelity=Fidelity.SEARCH,
    task_revision="revision",
    device_class="cpu",
    evaluator_version="version",
    ratios={"eager": Ratio(2.0, 1.5, 2.5)},
    custom=True,
)
FAILED = replace(CORRECT, ratios={}, status=Status.INFRA, custom=None)


def test_fitness_is_the_log_of_the_speedup_against_a_baseline():
    assert CORRECT.fitness("eager") == Interval(math.log(2.0), math.log(1.5), math.log(2.5))
    assert CORRECT.fitness("compile") is None


@pytest.mark.parametrize("custom", [None, False])
def test_only_custom_kernels_have_a_fitness(custom):
    found = replace(CORRECT, custom=custom)
    assert (found.strict, found.fitness("eager")) == (False, None)


def test_only_a_correct_evaluation_has_ratios():
    for status in Status:
        if status is not Status.CORRECT:
            with pytest.raises(ValueError, match=f"status {status} carries no ratios"):
                replace(CORRECT, status=status)


@pytest.mark.parametrize(
    ("labels", "is_worth"),
    [((), True), ((OPPONENT_FAILED,), True), ((DEVICE_OOM,), False), (("x", DEVICE_BUSY), False)],
)
def test_a_failure_of_the_judge_is_worth_another_try_unless_it_was_retried_alone(labels, is_worth):
    found = tuple(Label(name, "evidence") for name in labels)
    assert replace(FAILED, labels=found).is_worth_another_try is is_worth
    assert not replace(FAILED, status=Status.OOM, labels=found).is_worth_another_try


def test_a_verdict_says_whether_its_timing_ended_early():
    assert not CORRECT.early_stopped
    assert not replace(CORRECT, labels=(Label(OPPONENT_FAILED, ""),)).early_stopped
    found = (Label("x", ""), Label(EARLY_STOPPED, "after 2 looks"))
    assert replace(CORRECT, labels=found).early_stopped


def test_words_that_former_versions_stored_are_read_as_the_present_ones():
    stored = FAILED.to_json() | {
        "status": "contract",
        "labels": [["cut_short", "a"], ["no_room", "b"], ["occupied", "c"], ["mine", "d"]],
        "samples": {"wide": {"told": {"eager": 1}, "apart": []}, "odd": "too long"},
    }
    found = Evaluation.from_json(stored)
    assert found.status is Status.INVALID_INTERFACE
    names = [label.name for label in found.labels]
    assert names == [EARLY_STOPPED, DEVICE_OOM, DEVICE_BUSY, "mine"]
    assert found.samples == {
        "wide": {"self_reported": {"eager": 1}, "separate": []},
        "odd": "too long",
    }
    with pytest.raises(ValueError, match="unheard"):
        Evaluation.from_json(stored | {"status": "unheard"})


def test_the_raw_times_of_a_verdict_are_there_by_case():
    samples = CaseSamples(calls_per_block=3, overhead_ms=[0.1], ms={"eager": [[1.0]]})
    found = replace(CORRECT, samples={"wide": samples.to_json(), "odd": None})
    assert found.case_samples == {"wide": samples, "odd": CaseSamples()}


def test_seconds_of_stages_leave_out_the_parts_of_timing():
    assert stages_s({}) == 0
    assert stages_s({"compile": 1.0, "timing": 2.0, "timing_turn": 0.5, "verify": 0.25}) == 3.25


def test_stages_and_fidelities_are_in_the_order_of_their_cost():
    assert list(Stage) == sorted(Stage) == list(range(8))
    assert (min(Stage), max(Stage)) == (Stage.NONE, Stage.VERIFY)
