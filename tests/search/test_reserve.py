"""What is kept back for a verification follows from what evaluations have taken.

Invariants:
- a verification has eight pairs of processes or more and twice the checks, whatever an evaluation
  had, and builds no program; one that was measured stands for the next;
- what an evaluation waits for others is no part of it;
- the first evaluation, for which a task's inputs are made, does not stand for the next.
"""

from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.search.execution.reserve import VERIFICATION, Reserve


def judged(reserve, seconds, pairs=1, fidelity=Fidelity.SEARCH, half_width="0.03", **stages):
    samples = {"main": {"overhead_ms": pairs * [0.1]}} if stages else {}
    evaluation = Evaluation(
        status=Status.CORRECT, stage=Stage.TIMING, fidelity=fidelity, task_revision="t",
        device_class="d", evaluator_version="1", samples=samples, durations_s=stages,
        environment={"half_width": half_width},
    )  # fmt: skip
    reserve.judged(seconds, evaluation)


def test_nothing_is_kept_back_before_an_evaluation_has_ended():
    assert (Reserve().evaluation_s, Reserve().verification_s) == (0.0, 0.0)


def test_a_verification_takes_a_dozen_times_the_pair_and_twice_the_checks_of_an_evaluation():
    reserve = Reserve()
    judged(reserve, 4.0, timing=1.0, correctness=2.0, labels=1.0, compile=3.0, speed_of_light=1.0)
    assert reserve.verification_s == 8 * 1.5 * 1.0 + 2 * 2.0 + 1.0


def test_more_pairs_are_kept_time_for_where_one_is_not_enough_for_an_evaluation():
    quiet, busy = Reserve(), Reserve()
    judged(quiet, 4.0, timing=1.0, correctness=2.0)
    judged(busy, 6.0, pairs=3, timing=3.0, correctness=2.0)
    assert busy.verification_s - quiet.verification_s == (14 - 8) * 1.5


def test_wide_intervals_take_no_more_pairs_on_a_busy_host():
    narrow, wide = Reserve(), Reserve()
    judged(narrow, 6.0, pairs=3, timing=3.0)
    judged(wide, 6.0, pairs=3, timing=3.0, half_width="0.05")
    assert wide.verification_s == 8 * 1.5
    assert narrow.verification_s == 14 * 1.5


def test_waiting_for_others_is_no_part_of_an_evaluation():
    reserve = Reserve()
    judged(reserve, 9.0, timing=6.0, timing_turn=4.0, timing_lock=1.0, correctness=2.0)
    assert reserve.evaluation_s == 4.0
    assert reserve.verification_s == 8 * 1.5 * 1.0 + 2 * 2.0


def test_the_first_evaluation_does_not_stand_for_the_next():
    reserve = Reserve()
    for seconds in (20.0, 4.0, 3.0, 4.0):
        judged(reserve, seconds, timing=seconds / 4, correctness=seconds / 2)
    assert reserve.evaluation_s == 4.0
    assert reserve.verification_s == 8 * 1.5 * 1.0 + 2 * 10.0  # whose inputs are new again


def test_a_verification_that_was_measured_stands_for_the_next():
    reserve = Reserve()
    judged(reserve, 4.0, timing=1.0)
    judged(reserve, 9.0, fidelity=Fidelity.VERIFY, timing=5.0)
    assert reserve.verification_s == 9.0


def test_where_an_evaluation_tells_no_stages_a_verification_is_a_few_of_them():
    reserve = Reserve()
    judged(reserve, 4.0)
    assert reserve.verification_s == VERIFICATION * 4.0
