"""Reports of benches: one page, one table and a few lines; several suites side by side."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.cli.commands.look.report import main as report_run
from evolve.cli.commands.run.bench import report
from evolve.core.errors import UsageError
from evolve.core.evaluation import Evaluation, Status
from evolve.core.measurement import Ratio
from evolve.core.protocols import EvaluationRequest
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator, synthetic_task
from tests.cli.benching import DB, bench, planned
from tests.report.page import read

pytestmark = pytest.mark.usefixtures("bench_checkout")


def test_the_report_is_a_page_a_table_and_a_few_lines(capsys):
    plan = planned("baselines=[compile]")
    bench(plan)
    report(plan)
    printed = capsys.readouterr().out
    assert "3 of 3" in printed
    assert "amsr" in printed
    assert "As kernelbench scores it:" in printed
    assert "3 right at the first program, 0 rescued later" in printed
    page = read(Path("runs/kernelbench-seeds.html").read_text())
    assert not page.unbalanced
    assert not page.scripts
    for name in ("Softmax", "level 1", "torch.compile", "speed of light", "fast_0.5"):
        assert name.lower() in page.text.lower()
    rows = list(csv.DictReader(Path("runs/kernelbench-seeds.csv").read_text().splitlines()))
    assert [row["task"] for row in rows] == ["1/1", "1/2", "2/1"]
    assert all(float(row["eager_speedup"]) > 0 and row["program"] == "custom" for row in rows)
    assert all(float(row["compile_low"]) <= float(row["compile_high"]) for row in rows)
    assert all(float(row["candidate_ms_low"]) <= float(row["candidate_ms"]) for row in rows)
    assert {row["reason"] for row in rows} == {""}
    assert all(row["judge"] and row["begun"][:2] == "20" for row in rows)


class Better(SyntheticEvaluator):
    """A later version of the judge, which finds all programs twice as fast and one task's wrong."""

    def judge(self, request: EvaluationRequest) -> Evaluation:
        found = super().judge(request)
        if request.task.name == "kernelbench:1/2":
            return replace(found, status=Status.WRONG_VALUE, ratios={}, cases=())
        twice = {
            name: Ratio(2 * ratio.value, 2 * ratio.low, 2 * ratio.high)
            for name, ratio in found.ratios.items()
        }
        return replace(found, ratios=twice)


@pytest.mark.slow  # a report of one suite is above
def test_all_suites_of_a_database_are_on_one_page_with_benches_compared(capsys):
    bench(planned("name=one", "level=[1]"))
    bench(planned("name=two", "level=[1]"), Better(evaluator_version="synthetic-2"))
    assert report_run(["--suites", "--store", DB]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["kernelbench", "one", "-", "2", "of", "2", "2"] in [row[:7] for row in rows]
    assert ["kernelbench", "two", "-", "2", "of", "2", "1"] in [row[:7] for row in rows]
    (versus,) = [row for row in rows if row[:3] == ["kernelbench", "two", "one"]]
    in_both, faster, slower, even, won, lost, ratio = versus[3:10]
    assert (in_both, faster, slower, even, won, lost) == ("2", "1", "0", "0", "0", "1")
    assert float(ratio[:-1]) == pytest.approx(2.0, rel=0.05)  # and a sign for times
    assert "differ in versions of the evaluator: synthetic-1; synthetic-2" in printed
    page = read(Path("runs/suites.html").read_text())
    assert not page.unbalanced
    assert "kernelbench: one and two differ" in page.text
    assert "fast_1: share of tasks" in page.text


def test_a_database_without_a_suite_says_so():
    with Store.open(DB, create=True) as store:
        store.create_run(name="alone", task=synthetic_task(), config={}, seed=0)
    with pytest.raises(UsageError, match="no run of `evolve bench`"):
        report_run(["--suites", "--store", DB])
    with pytest.raises(UsageError, match="leave one of them out"):
        report_run(["alone", "--suites", "--store", DB])
