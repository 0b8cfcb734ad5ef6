"""The curve of the best speedup so far.

Invariants:
1. It has every timed evaluation at its number, and counts those without a time apart.
2. A verification stands at the number of the last evaluation before it, and is none itself.
3. Where nothing was timed there is no curve.
"""

import math
from pathlib import Path

import pytest

from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Failed, Proposal
from evolve.report.run.facts import gather
from evolve.report.run.html import write_report
from evolve.report.run.progress_chart import progress_chart
from evolve.report.text import TIMES
from evolve.store import Store
from tests.report.filling import Filling, evaluation, source
from tests.report.page import read


def filled(store: Store, speedups: list[float | None]) -> Filling:
    """One evaluation for each speedup; None is a wrong program."""
    made = Filling(store=store)
    for number, speedup in enumerate(speedups):
        status = Status.WRONG_VALUE if speedup is None else Status.CORRECT
        verdict = evaluation(made.task, status, Fidelity.SEARCH, math.log(speedup or 1))
        made.step("improve", Proposal(program=Program(source(number, 1))), verdict, "0")
    return made


def test_the_curve_counts_improvements_failures_and_verifications(store: Store, tmp_path: Path):
    made = filled(store, [1.0, None, 2.0, 1.5, 3.0, 2.5])
    made.step("improve", Failed("the reply holds no edit"))
    made.verify()
    chart = progress_chart(gather(store, made.name).steps, "eager")
    assert chart is not None
    assert (chart.evaluations, chart.failures) == (6, 1)
    assert (chart.improvements, chart.last_improvement) == (2, 5)
    speedups = [float(dot.label.split()[2].removesuffix(TIMES)) for dot in chart.dots]
    assert speedups == [1.0, 2.0, 1.5, 3.0, 2.5]
    assert [round(dot.x / 1000 * 6 + 0.5) for dot in chart.dots] == [1, 3, 4, 5, 6]
    assert [dot.x for dot in chart.verified] == [chart.dots[-1].x]
    assert min(chart.dots, key=lambda dot: dot.y) == chart.dots[3]
    said = "2 improvements over the first correct kernel in 6 evaluations, the last at number 5"
    text = read(write_report(store, made.name, tmp_path / "r.html").read_text()).text
    assert said in " ".join(text.split())


@pytest.mark.parametrize("speedups", [[], [None, None]])
def test_where_nothing_was_timed_there_is_no_curve(store: Store, speedups: list[float | None]):
    made = filled(store, speedups)
    assert progress_chart(gather(store, made.name).steps, "eager") is None
