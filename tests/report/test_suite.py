"""Figures of a suite, each by the definition that the field states.

Invariants:
1. `fast_p` counts tasks above p over all tasks; a failure is in it, a program that was not timed
   beside the baseline is in no figure against that baseline.
2. amsr is the mean speedup with every one below 1 and every failure as 0; only there a weak task
   counts.
3. The geometric mean over all is never further from 1 than that over correct programs, whatever the
   speedups; its interval holds it.
4. A task's custom program is the champion of its run, whatever measured more.
5. A verdict that says nothing of its device, as those about the judge itself, names none.
6. The page's table has every task whose run has begun, and no other.
"""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.measurement import Ratio
from evolve.core.task import Task
from evolve.report.suite.figures import categories, counting, figures, geometric_mean, groups
from evolve.report.suite.page import caveats, render_suite, task_lines
from evolve.report.suite.results import Found, SuiteTask, TaskResult, read_result, task_line
from evolve.store import RunRow, Store
from evolve.store.champion import CHAMPION, champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.search.conftest import make_search, run_to_end

SPEEDUPS = st.lists(st.floats(0.01, 100), min_size=1, max_size=30)


def run_row(state: str = "finished") -> RunRow:
    return RunRow(
        id=1,
        name="run",
        task=Task(name="t", source="x = 1"),
        config={},
        seed=0,
        state=state,
        reason="",
        created="2026-01-01",
    )


def solved(speedup: float | None, kind: str = "custom", **about) -> TaskResult:
    """A task whose search has ended with a program of such a speedup, or with none."""
    found = None
    if speedup is not None:
        ratio = Ratio(speedup, speedup, speedup)
        found = Found(kind=kind, sequence=0, ratios={"eager": ratio, "compile": ratio})
    task = SuiteTask(run="run", label="1/1", level="1", title="T", category=about.pop("of", ""))
    return TaskResult(task=task, run=run_row(), **({kind: found} if found else {}), **about)


RESULTS = [solved(speedup) for speedup in (0.5, 0.9, 1.0, 1.1, 1.6, 4.0)] + [solved(None)]


def test_fast_p_counts_what_is_above_p_over_all_tasks():
    found = figures(RESULTS, "custom", "eager")
    assert (found.tasks, found.correct) == (7, 6)
    assert found.fast == {0.8: 5, 1.0: 3, 1.2: 2, 1.5: 2, 2.0: 1}
    assert found.median == pytest.approx(1.05)


def test_amsr_is_the_mean_speedup_with_slowdowns_and_failures_as_nothing():
    assert figures(RESULTS, "custom", "eager").amsr == pytest.approx((1.0 + 1.1 + 1.6 + 4.0) / 7)


def test_a_search_that_has_not_ended_is_in_no_figure():
    running = replace(solved(9.0), run=run_row("interrupted"))
    assert figures([*RESULTS, running], "custom", "eager") == figures(RESULTS, "custom", "eager")


def test_a_program_not_timed_beside_a_baseline_is_left_out_there_and_counted():
    untimed = solved(3.0)
    assert untimed.custom is not None
    untimed = replace(
        untimed, custom=replace(untimed.custom, ratios={"eager": Ratio(3.0, 3.0, 3.0)})
    )
    found = figures([*RESULTS, untimed], "custom", "compile")
    assert (found.tasks, found.correct, found.untimed) == (7, 6, 1)


def test_programs_with_vendors_calls_count_in_their_own_column_only():
    results = [solved(2.0, "mixed"), solved(3.0)]
    assert figures(results, "custom", "eager").correct == 1
    assert figures(results, "mixed", "eager").correct == 2


def test_a_weak_task_counts_for_nothing_but_in_the_published_average():
    weak = solved(5.0, weak="zeros are judged correct")
    assert counting(weak, "custom") is None
    assert figures([weak], "custom", "eager").correct == 0
    assert figures([weak], "custom", "eager", weak_counts=True).amsr == 5.0
    assert "WEAK" in task_line(weak, ["compile"])


@given(SPEEDUPS)
def test_means_lie_between_the_extremes_and_in_their_interval(speedups: list[float]):
    mean = geometric_mean(speedups)
    assert mean is not None
    assert mean.low <= mean.value <= mean.high
    assert min(speedups) * 0.999 <= mean.value <= max(speedups) * 1.001


@given(SPEEDUPS, st.integers(0, 5))
def test_failures_pull_the_mean_over_all_towards_one(speedups: list[float], failures: int):
    found = figures([*map(solved, speedups), *[solved(None)] * failures], "custom", "eager")
    assert found.geomean is not None
    assert found.geomean_all is not None
    over_all, over_correct = math.log(found.geomean_all), math.log(found.geomean.value)
    assert abs(over_all) <= abs(over_correct) + 1e-9


def test_tasks_are_grouped_by_level_and_category():
    results = [solved(1.0, of="matmul"), solved(2.0, of="matmul"), solved(3.0, of="")]
    assert [(name, len(members)) for name, members in categories(results)] == [
        ("matmul", 2),
        ("other", 1),
    ]
    assert [name for name, _ in groups(results)] == ["level 1"]
    other = replace(results[0], task=replace(results[0].task, level="2"))
    assert [name for name, _ in groups([*results, other])] == ["all levels", "level 1", "level 2"]


def test_a_page_names_the_devices_that_verdicts_name():
    failed = solved(None, environment={"device_class": "cpu"})
    judged = solved(2.0, environment={"device_class": "cpu", "device": "a CPU"})
    other = solved(2.0, environment={"device_class": "cpu", "device": "another CPU"})
    assert "judged on <b>nothing yet</b>" in render_suite("mine", "kernelbench", [failed])
    assert "judged on <b>a CPU</b>" in render_suite("mine", "kernelbench", [failed, judged])
    assert not [line for line in caveats([failed, judged]) if "several devices" in line]
    assert "Judged on several devices: a CPU, another CPU." in caveats([failed, other, judged])


@pytest.mark.parametrize(("share", "said"), [(0.25, "25 %"), (1.0, "100 %"), (None, "-")])
def test_a_share_of_the_speed_of_light_is_said_in_percent(share, said):
    found = solved(2.0)
    light = replace(found, custom=replace(found.custom, speed_of_light=share))
    page = render_suite("mine", "kernelbench", [light])
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*<td>custom</td><td>eager</td>.*?</tr>", page, re.S)
    assert f"<td>{said}</td>" in row


def test_the_table_has_every_task_whose_run_has_begun():
    running = replace(solved(None), run=run_row("running"))
    waiting = replace(solved(None), run=None)
    results = [solved(2.0), waiting, running, solved(0.5, weak=True)]
    assert [(line.verdict, line.outcome) for line in task_lines(results, ["eager"])] == [
        ("custom", "gain"),
        ("none", "none"),
        ("custom, weak task", "slower"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [(1.0, 1.2, "even"), (1.01, 1.2, "gain"), (0.8, 1.0, "even"), (0.8, 0.99, "slower")],
)
def test_a_task_is_a_gain_only_if_its_whole_interval_is(low: float, high: float, outcome: str):
    found = Found(kind="custom", sequence=0, ratios={"eager": Ratio(low, low, high)})
    [line] = task_lines([replace(solved(None), custom=found)], ["eager"])
    assert line.outcome == outcome


def test_the_program_of_a_task_is_the_champion_of_its_run(tmp_path):
    class Drawn(SyntheticEvaluator):
        def judge(self, request):
            verdict = super().judge(request)
            duel = {CHAMPION: Ratio(1.0, 0.98, 1.02)} if CHAMPION in request.opponents else {}
            return replace(verdict, ratios=verdict.ratios | duel)

    with Store.open(tmp_path / "evolve.db", create=True) as store:
        run = store.create_run(name="run", task=synthetic_task(), config={}, seed=1)
        run_to_end(make_search(store, run), Drawn(), evaluations=1)
        search = make_search(store, run)
        faster = search.offer(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 128") + "X = 1\n")
        search.tell(faster, Drawn().judge(search.request(faster)))
        run_to_end(make_search(store, run), Drawn(), evaluations=2)
        winner = champion(store, run)
        task = SuiteTask(run="run", label="1/1", level="1", title="T", category="")
        found = read_result(store, task, run).custom
        measured = max(step.ratios["eager"].value for step in store.steps(run.id))
    assert found.ratios["eager"] == winner.ratio
    assert winner.ratio.value < measured
