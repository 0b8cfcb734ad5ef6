"""Methods side by side.

Invariants:
1. The interval of a median is one of order statistics: it is between two of the values, it covers
   as often as it says, and a run without a correct program counts as the lowest.
2. A curve says what would have been handed over: a better lower bound raises it, measuring again
   moves it, and what is refuted leaves it.
3. A page is offline, complete and readable with one run, with many methods, and with no program.
"""

import math
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.errors import UsageError
from evolve.core.evaluation import Fidelity, Status
from evolve.core.program import Program
from evolve.core.protocols import Failed, Proposal
from evolve.report.comparison.chart import charts
from evolve.report.comparison.compare import (
    caveats,
    comparison_csv,
    differing_settings,
    gather_comparison,
    method_lines,
    render_comparison,
    verdict,
    write_comparison,
)
from evolve.report.comparison.curves import ENOUGH, read_curve, spread, wins
from evolve.store import Store
from tests.report.filling import CONFIG, TASK, Filling, evaluation, source
from tests.report.page import read
from tests.report.test_browser import BROWSER, browse

VALUES = st.lists(st.one_of(st.none(), st.floats(0.01, 100)), min_size=1, max_size=30)


@given(VALUES)
def test_a_median_lies_in_an_interval_between_two_of_the_values(values: list[float | None]):
    found = spread(values)
    known = sorted(-math.inf if value is None else value for value in values)
    low, middle, high = (
        -math.inf if bound is None else bound for bound in (found.low, found.value, found.high)
    )
    assert low in known
    assert high in known
    assert low <= middle <= high or math.isclose(low, middle) or math.isclose(middle, high)
    assert (found.coverage >= ENOUGH) == (len(values) >= 6)
    if len(values) < 6:
        assert (low, high) == (known[0], known[-1])


@pytest.mark.parametrize("seeds", [3, 6, 9, 20])
def test_an_interval_covers_the_median_as_often_as_it_says(seeds: int):
    rng = random.Random(seeds)
    hits = 0
    for _ in range(3000):
        found = spread([rng.lognormvariate(0.5, 1.0) for _ in range(seeds)])
        hits += found.low <= math.exp(0.5) <= found.high
    assert hits / 3000 == pytest.approx(spread([1.0] * seeds).coverage, abs=0.025)


def test_a_median_of_speedups_is_the_same_from_either_side():
    values = [0.5, 2.0, 3.0, 4.0]
    inverse = spread([1 / value for value in values]).value
    assert spread(values).value == pytest.approx(1 / inverse)
    assert spread([1.0, 2.0, 9.0]).value == statistics.median([1.0, 2.0, 9.0])


def test_wins_count_pairs_of_seeds_and_ties_by_half():
    assert wins([2.0, 3.0], [1.0, None]) == 4
    assert wins([2.0], [2.0]) == 0.5
    assert wins([None], [0.1, None]) == 0.5


def told(filled: Filling, number: int, *logs: float, status: Status = Status.CORRECT) -> None:
    """Full evaluations of one program, one after the other."""
    for log in logs or (0.0,):
        verdict = evaluation(TASK, status, Fidelity.SEARCH, log, 0.05)
        proposal = Proposal(program=Program(source(number, 1)), is_reevaluation=True)
        filled.step("improve", proposal, verdict, f"{number}")


def test_a_curve_rises_with_the_lower_bound_and_falls_where_it_is_measured_again(store: Store):
    filled = Filling(store=store)
    told(filled, 1, 0.2)
    told(filled, 2, 0.6)
    told(filled, 3, 0.5)  # lower than the best
    told(filled, 2, 0.3)  # it was luck
    curve = read_curve(store, store.run("demo"))
    bests = [math.log(point.best.value) for point in curve.points if point.best]
    assert bests[0] == pytest.approx(0.2)
    assert bests[1] == pytest.approx(0.6)
    assert bests[-1] == pytest.approx(0.5)  # the other leads now, at its own estimate
    assert [point.spent.evaluations for point in curve.points] == [1, 2, 4]
    assert curve.total.evaluations == 4
    assert curve.at("evaluations", 0) is None
    assert curve.at("evaluations", 3) == pytest.approx(math.exp(0.6))


def test_what_is_refuted_leaves_a_curve(store: Store):
    filled = Filling(store=store)
    told(filled, 1, 0.4)
    told(filled, 1, status=Status.WRONG_VALUE)
    curve = read_curve(store, store.run("demo"))
    assert curve.points[-1].best is None
    assert curve.at("evaluations", 2) is None


def test_failures_to_propose_count_as_proposals_and_verifications_as_nothing(store: Store):
    filled = Filling(store=store)
    told(filled, 1, 0.4)
    filled.step("improve", Failed("no edit"))
    filled.verify()
    total = read_curve(store, store.run("demo")).total
    assert (total.proposals, total.evaluations) == (2, 1)


def filled_methods(store: Store, *names: str, seeds: int = 2) -> dict[str, list[str]]:
    methods: dict[str, list[str]] = {}
    for place, name in enumerate(names):
        for seed in range(seeds):
            config = CONFIG | {"selection": {"_target_": name}}
            run = Filling(store=store, name=f"{name}-{seed}", seed=10 * place + seed, config=config)
            run.search(25)
            run.verify()
            run.finish()
            methods.setdefault(name, []).append(run.name)
    return methods


def test_a_page_shows_every_method_and_run_and_loads_nothing(store: Store, tmp_path: Path):
    comparison = gather_comparison(store, filled_methods(store, "polca", "mcts", "shinka"))
    write_comparison(comparison, tmp_path / "page.html", tmp_path / "page.csv")
    page = read((tmp_path / "page.html").read_text())
    assert not page.unbalanced
    assert not page.scripts
    assert not [value for _, name, value in page.attributes if name in ("src", "href")]
    for text in ("polca", "mcts-1", "shinka-0", "full evaluations", "selection._target_"):
        assert text in page.text
    assert len([tag for tag, found in page.tags if "method line-" in found.get("class", "")]) >= 9
    assert differing_settings(comparison) == [("selection._target_", ["polca", "mcts", "shinka"])]
    assert "2 seeds a method" in " ".join(caveats(comparison))


@pytest.mark.slow  # a page of some methods is in the tests above
def test_one_run_and_many_methods_make_a_page(store: Store):
    one = gather_comparison(store, filled_methods(store, "polca", seeds=1))
    assert not read(render_comparison(one)).unbalanced
    assert method_lines(one)[0].span == ""
    names = [f"method{number}" for number in range(10)]
    many = gather_comparison(store, filled_methods(store, *names, seeds=1))
    assert {line.style for line in method_lines(many)} >= {"line-0", "line-0 dashed"}


def test_methods_without_a_correct_program_are_said_to_have_none(store: Store):
    filled = Filling(store=store)
    told(filled, 1, status=Status.COMPILE_ERROR)
    comparison = gather_comparison(store, {"polca": ["demo"]})
    assert verdict(comparison) == "No method found a strictly correct kernel."
    assert charts(comparison.groups) == []
    assert "no curves" in read(render_comparison(comparison)).text
    assert comparison_csv(comparison).count("\n") == 1


def test_a_verdict_names_no_winner_that_the_seeds_do_not_show(store: Store):
    comparison = gather_comparison(store, filled_methods(store, "polca", "mcts"))
    curves = comparison.groups[0].curves
    level = replace(comparison, groups=[replace(comparison.groups[0], label="other"),
                                        comparison.groups[0]])  # fmt: skip
    assert verdict(level).startswith("No winner: these seeds do not separate other ")
    assert "(speedup over PyTorch eager)" in verdict(level)
    assert "highest" not in verdict(level)
    assert len(curves) == 2


def test_runs_against_different_baselines_are_refused(store: Store):
    Filling(store=store, name="one")
    Filling(store=store, name="two", config=CONFIG | {"baseline": "eager_tf32"})
    with pytest.raises(UsageError, match="not the same baseline"):
        gather_comparison(store, {"a": ["one"], "b": ["two"]})


def test_runs_with_different_budgets_are_said_to_have_them(store: Store):
    Filling(store=store, name="one")
    Filling(store=store, name="two")
    longer = {"evaluations": 800, "wall_time": None}
    Filling(store=store, name="three", config=CONFIG | {"termination": longer})
    alike = caveats(gather_comparison(store, {"a": ["one"], "b": ["two"]}))
    assert "budget" not in " ".join(alike)
    (said,) = [
        line
        for line in caveats(gather_comparison(store, {"a": ["one", "two"], "b": ["three"]}))
        if "budget" in line
    ]
    assert "one, two: evaluations=400 wall_time=2m; three: evaluations=800)" in said


@pytest.mark.slow  # a browser; test_browser opens reports
@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_the_page_comes_out_in_a_browser_without_a_complaint(store: Store, tmp_path: Path):
    page = tmp_path / "page.html"
    page.write_text(render_comparison(gather_comparison(store, filled_methods(store, "a", "b"))))
    shown = browse(tmp_path, page, f"--screenshot={tmp_path / 'page.png'}")
    assert "CONSOLE" not in shown.stderr
    assert (tmp_path / "page.png").stat().st_size > 20_000
