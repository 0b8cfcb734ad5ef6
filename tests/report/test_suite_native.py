"""The scores that suites report themselves, by their own formulas.

Invariants:
1. Every suite of this package has scores that its tasks can be given, in rows for all, each level
   and each category.
2. A program that the suite's own rule refuses counts in none; the next fastest that passes does.
3. After more programs no share falls, and what is rescued is neither first nor persistent.
"""

import html
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest
from evolve.report.suite.attempts import Attempt, Attempts, read_attempts
from evolve.report.suite.native import (
    heading_of,
    iteration_rows,
    native_rows,
    rescue_text,
    scores_of,
)
from evolve.report.suite.page import render_suite
from evolve.report.suite.results import TaskResult
from evolve.store import Store
from evolve.tasks.suites import suites
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.report.test_suite import solved
from tests.search.conftest import make_search, run_to_end

RIGHT, WRONG, BROKEN = Attempt(True, True, 2.0), Attempt(True, False), Attempt(False, False)


def task(speedup: float | None, *, ran: bool = True, shares=None, speedups=None) -> TaskResult:
    """A task whose best program has such a speedup; None: none is right."""
    tried = (Attempt(ran, speedup is not None, speedup),)
    attempts = Attempts(tried, speedup is not None, speedup, speedups or {}, shares or {})
    return replace(solved(None), attempts=attempts)


def scores(suite: str, *tasks: TaskResult) -> dict[str, float | None]:
    attempts = [one.attempts for one in tasks]
    return {score.name: score.value(attempts) for score in scores_of(suite)}


MIXED = (task(20.0), task(0.05), task(1.0), task(None), task(None, ran=False))


def test_kernelbench_counts_speedups_above_p_over_all_tasks():
    found = scores("kernelbench", *MIXED)
    assert (found["correct"], found["fast_0.5"], found["fast_1"]) == (0.6, 0.4, 0.2)


def test_tritonbench_leaves_out_speedups_that_it_takes_for_errors():
    found = scores("tritonbench_t", *MIXED)
    assert (found["call accuracy"], found["execution accuracy"], found["speedup"]) == (0.8, 0.6, 1)
    assert scores("tritonbench_g", *MIXED)["speedup"] == pytest.approx(1.05 / 2)
    assert scores("kernelbench_x", *MIXED)["speedup"] == pytest.approx(21.05 / 3)


def test_a_mean_over_workloads_comes_before_that_over_definitions():
    several = task(2.0, speedups={"a": 1.0, "b": 5.0})
    assert scores("flashinfer_bench", several, task(2.0, speedups={"a": 2.0}))["speedup"] == 2.5


@pytest.mark.parametrize(
    ("speedup", "share", "expected"),
    [(1.0, 0.5, 0.5), (3.0, 2.0, 1.0), (2.0, 1.0, 1.0), (0.5, 0.5, 0.0), (3.0, 0.5, 5 / 6)],
)
def test_the_speed_of_light_has_one_and_the_baseline_a_half(speedup, share, expected):
    one = task(speedup, speedups={"a": speedup}, shares={"a": share})
    assert scores("sol_execbench", one)["score"] == pytest.approx(expected)
    assert scores("sol_execbench", one, task(None))["score"] == pytest.approx(expected / 2)


def test_other_suites_have_their_own_means():
    light = task(2.0, shares={"a": 0.25, "b": 1.0})
    assert scores("kernelbench_hard", light, task(None))["peak fraction"] == pytest.approx(0.25)
    assert scores("backendbench", task(4.0), task(None))["performance"] == pytest.approx(2.0)
    arena = scores("agent_kernel_arena", task(2.0), task(None), task(None, ran=False))
    assert arena["points"] == pytest.approx((320 + 20 + 0) / 3)


@pytest.mark.parametrize("suite", suites())
def test_every_suite_has_a_row_for_all_levels_and_categories(suite: str):
    one = replace(solved(None, of="matmul"), attempts=MIXED[0].attempts)
    two = replace(solved(None, of="softmax"), attempts=MIXED[3].attempts)
    two = replace(two, task=replace(two.task, level="2"))
    running = replace(one, run=replace(one.run, state="interrupted"))
    rows = native_rows(suite, [one, two, running])
    assert [row[:2] for row in rows] == [
        ("all", "2"), ("level 1", "1"), ("level 2", "1"), ("matmul", "1"), ("softmax", "1"),
    ]  # fmt: skip
    assert {len(row) for row in rows} == {2 + len(scores_of(suite))}
    assert native_rows(suite, [])[0][2:] == ("-",) * len(scores_of(suite))


@pytest.mark.parametrize("suite", [*suites(), "of_another_package"])
def test_kernelbenchs_scores_stand_under_no_other_suites_name(suite: str):
    is_kernelbenchs = scores_of(suite) == scores_of("kernelbench") and suite != "kernelbench"
    expected = "By KernelBench's scores" if is_kernelbenchs else f"As {suite} scores it"
    assert heading_of(suite) == expected
    assert expected in html.unescape(render_suite("bench", suite, [MIXED[0]]))


ATTEMPTS = st.lists(st.sampled_from((RIGHT, WRONG, BROKEN)), max_size=30).map(tuple)


@given(st.lists(ATTEMPTS, max_size=6))
def test_with_more_programs_no_share_falls(tried):
    results = [replace(solved(None), attempts=Attempts(one)) for one in tried]
    rows = iteration_rows(results)
    for column in (1, 2, 3):
        values = [float(row[column].removesuffix(" %")) for row in rows]
        assert values == sorted(values)
    assert [int(row[0]) for row in rows] == sorted({int(row[0]) for row in rows})


def test_rows_are_at_round_numbers_of_programs_and_at_the_end():
    results = [replace(solved(None), attempts=Attempts((WRONG,) * 777))]
    *rows, last = [int(row[0]) for row in iteration_rows(results)]
    assert (rows[0], last) == (1, 777)
    assert all(str(row).rstrip("0") in {"1", "2", "3", "5"} for row in rows)
    assert all(larger <= 3 * row for row, larger in pairwise([*rows, last]))


def test_what_is_rescued_is_neither_first_nor_persistent():
    tried = [(RIGHT, WRONG), (BROKEN, WRONG, RIGHT), (WRONG,), ()]
    results = [replace(solved(None), attempts=Attempts(one)) for one in tried]
    assert rescue_text(results) == (
        "1 right at the first program, 1 rescued later, 1 persistent failures"
    )


class Refusing(SyntheticEvaluator):
    """A judge whose suite refuses programs faster than so many times."""

    most = 1.5

    def judge(self, request: EvaluationRequest) -> Evaluation:
        found = super().judge(request)
        ratio = found.ratios.get("eager")
        return replace(found, suite=ratio is None or ratio.value <= self.most)


@pytest.mark.parametrize("most", [1.5, 0.0])
def test_a_program_that_the_suites_rule_refuses_does_not_count(tmp_path, most: float):
    judge = Refusing()
    judge.most = most
    with Store.open(tmp_path / "runs.db", create=True) as store:
        run = store.create_run(name="run", task=synthetic_task(), config={}, seed=1)
        run_to_end(make_search(store, run), judge, evaluations=6)
        steps = list(store.steps(run.id))
        found = read_attempts(store, run, steps)
        best = max(one.speedup or 0.0 for one in found.tried)
    assert len(found.tried) == len({step.program for step in steps} - {None})
    assert found.passes is (most > 0)
    if found.passes:
        assert found.speedup is not None
        assert found.speedup <= most < best
