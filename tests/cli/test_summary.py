"""The last lines of a run.

Invariants:
1. Programs without a verdict and requests without an answer are said, with the way to go on.
2. Where nothing is left, nothing of it is said.
3. A configured model that was never asked, or never answered, is said.
4. The winner is named by its program and the step that made it; its gain is said once, and by case
   if there are several.
5. A winner below the baseline is not offered as a kernel, and `evolve best` warns of it.
6. A limit on time, or on evaluations if the winner is slower, that ended a run is raised by the
   command that continues it; if another reason ended it, no such command is shown.
7. More time is advised only if a limit on it has ended the run; else the failed steps are named.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app.attach import attach
from evolve.app.manual.files import ByHand
from evolve.app.text import speedup_text
from evolve.cli.console.summary import summary
from evolve.cli.main import main
from evolve.core.evaluation import Fidelity
from evolve.core.measurement import Ratio
from evolve.core.protocols import Failed
from evolve.report.run.acceptance_rates import funnel
from evolve.report.run.facts import gather
from evolve.search.execution.pipeline import Outcome
from evolve.search.termination import limit_of
from evolve.store import Store
from evolve.store.champion import champion
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.recording import record, settings


class Times(SyntheticEvaluator):
    """A judge whose times are all so many times what they were; verifications apart."""

    def __init__(self, factor: float, of_verifications: float) -> None:
        super().__init__()
        self._factors = {Fidelity.VERIFY: of_verifications}
        self._factor = factor

    def judge(self, request):
        verdict = super().judge(request)
        factor = self._factors.get(request.fidelity, self._factor)
        return replace(
            verdict,
            ratios={name: Ratio(factor, factor * 0.9, factor * 1.1) for name in verdict.ratios},
        )


@pytest.fixture
def store(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        record(opened, synthetic_task(), SyntheticEvaluator(), "operators=llm")
        yield opened


def said(store: Store, reason: str = "2m of 2m wall time used") -> list[str]:
    outcome = Outcome(reason=reason, finished=True)
    return list(summary(gather(store, "demo"), outcome, "runs/evolve.db", "demo.html"))


def test_what_was_not_judged_or_answered_any_more_is_said(store):
    with attach(store, store.run("demo"), model=ByHand()) as search:
        search.offer(f"{SEED_SOURCE}\n\nOFFERED = 1\n")
        search.ask(operators=["rewrite_full"])
        search.ask(operators=["rewrite_full"])
    lines = said(store)
    left = "  1 program not judged yet, 2 requests not answered yet: `evolve resume` continues"
    assert any(line.startswith(left) for line in lines)
    assert "  go on     evolve resume demo" in lines


@pytest.mark.slow
def test_a_model_that_was_never_asked_is_said(tmp_path):
    with Store.open(tmp_path / "other.db", create=True) as opened:
        words = ("operators=llm", "llm.model=openai/x")
        record(opened, synthetic_task(), SyntheticEvaluator(), *words)
        assert any(line.startswith("  No model was asked") for line in said(opened))
        with attach(opened, opened.run("demo"), model=ByHand()) as search:
            search.ask(operators=["rewrite_full"])
        assert any(line.startswith("  No model has answered") for line in said(opened))


@pytest.mark.parametrize(
    ("words", "reason", "more"),
    [
        (["wall_time=2m"], "2m of 2m wall time used", "wall_time=10m"),
        (["wall_time=2h"], "1h of 2h wall time used, too little is left", "wall_time=4h"),
        (["device_time=1h"], "1h of 1h device time used", "device_time=2h"),
        (
            ["device_time=1h", "all_of.device_time=10m", "all_of.evaluations=3"],
            "10m of 10m device time used and 3 of 3 evaluations used",
            "all_of.device_time=20m",
        ),
    ],
)
def test_a_run_that_a_limit_on_time_ended_can_go_on_with_more_of_it(tmp_path, words, reason, more):
    with Store.open(tmp_path / "other.db", create=True) as opened:
        config = settings(*(f"termination.{word}" for word in words))
        opened.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        lines = said(opened, reason)
        assert f"  go on     evolve resume demo termination.{more}" in lines
        assert not any("go on" in line for line in said(opened, "target of 2.0 reached"))


@pytest.mark.parametrize("words", [(), ("operators=llm", "llm.model=openai/x")])
def test_more_time_is_advised_only_if_time_was_short(tmp_path, words):
    with Store.open(tmp_path / "other.db", create=True) as opened:
        opened.create_run(name="demo", task=synthetic_task(), config=settings(*words), seed=0)
        assert any("termination.wall_time=10m" in line for line in said(opened))
        why = "nothing is left to propose: seed: it runs on a GPU only"
        assert not any("wall_time" in line for line in said(opened, why))


ENDS = {
    "replies": "50 replies in a row gave no program, the last: 3s of 5s wall time used",
    "proposals": "50 proposals in a row gave no program, the last: broken",
    "a number": "1 of 1 proposals used",
    "money": "5.10 of 5.00 USD used",
    "a person": "stop requested",
}


@pytest.mark.parametrize("failed", [0, 2])
@pytest.mark.parametrize("reason", ENDS.values(), ids=ENDS)
def test_without_a_verdict_no_time_is_advised_but_by_a_limit_on_it(tmp_path, reason, failed):
    with Store.open(tmp_path / "other.db", create=True) as opened:
        config = settings("operators=llm", "llm.model=openai/x")
        run = opened.create_run(name="demo", task=synthetic_task(), config=config, seed=0)
        opened.claim(run.id)
        for _ in range(failed):
            opened.propose(opened.ask(run.id, "rewrite_full", ()), Failed("no code"))
        lines = said(opened, reason)
    [found] = [line for line in lines if "No program was judged" in line]
    assert not any("wall_time" in line for line in lines)
    assert found.endswith(
        ": 2 steps gave none, see `evolve show demo:1` for the last" if failed else "judged"
    )
    assert any("No model was asked" in line for line in lines) is not bool(failed)


def test_a_run_too_long_to_be_read_whole_is_not_said_to_have_no_verdict(store):
    outcome, facts = Outcome(reason="done", finished=True), gather(store, "demo", whole=False)
    assert not any(step.status for step in facts.steps)
    assert not any("No program" in line for line in summary(facts, outcome, "x.db", ""))


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("2m of 2m wall time used", "wall_time"),
        ("1m55.5s of 2m wall time used, too little is left for another evaluation", "wall_time"),
        ("3 of 3 evaluations used and 1h of 0.5h device time used", "device_time"),
        ("60 of 60 evaluations used", "evaluations"),
        ("1 of 1 proposals used", ""),
        ("50 replies in a row gave no program, the last: 2m of 2m wall time used", ""),
        ("50 replies in a row gave no program, the last: 3 of 3 evaluations used", ""),
    ],
)
def test_the_limit_on_time_or_evaluations_that_ended_a_run_is_known_by_its_reason(reason, limit):
    assert limit_of(reason) == limit


@pytest.mark.slow
def test_where_nothing_is_left_nothing_of_it_is_said(store):
    lines = said(store, "target of 2.0 reached")
    assert not [line for line in lines if "not judged yet" in line or "go on" in line]


@pytest.mark.parametrize(("cases", "times"), [(1, 1), (2, 3)])
def test_the_gain_of_the_winner_is_said_once_or_by_case(store, cases, times):
    facts = gather(store, "demo")
    found = facts.champion.evaluation
    named = [replace(found.cases[0], name=f"case{number}") for number in range(cases)]
    ratios = {facts.baseline: facts.champion.ratio}
    evaluation = replace(found, cases=tuple(replace(each, ratios=ratios) for each in named))
    winner = replace(facts.champion, evaluation=evaluation)
    outcome = Outcome(reason="2m of 2m wall time used", finished=True)
    lines = summary(replace(facts, champion=winner), outcome, "runs/evolve.db", "demo.html")
    assert sum(speedup_text(winner.ratio) in line for line in lines) == times


def test_the_winner_is_named_by_its_program_and_the_step_that_made_it(store):
    run = store.run("demo")
    winner = champion(store, run)
    made = store.ancestors(run.id, winner.program)[-1]
    assert winner.sequence != made.sequence
    named = f"program {winner.program[:12]} of step {made.sequence} ({made.operator})"
    [line] = [line for line in said(store) if "  program " in line]
    assert line.startswith(f"  {named}")
    assert line.endswith(f"verified in step {winner.sequence}")


def test_a_kernel_below_the_baseline_is_not_offered_and_best_warns(tmp_path, capsys):
    path = tmp_path / "evolve.db"
    with Store.open(path, create=True) as opened:
        record(opened, synthetic_task(), Times(0.5, 0.4))
        lines = said(opened)
    assert not [line for line in lines if line.startswith("  kernel ")]
    assert any("slower than PyTorch eager" in line for line in lines)
    [more] = [line for line in lines if line.startswith("  go on ")]
    assert more == "  go on     evolve resume demo termination.wall_time=20m"
    assert main(["best", "demo", "--store", str(path)]) == 0
    shown = capsys.readouterr()
    assert "class ModelNew" in shown.out
    [warning] = shown.err.splitlines()
    for words in ("is slower than PyTorch eager", "0.40", "evolve resume demo"):
        assert words in warning


SLOWER = ("termination.evaluations=400", "termination.all_of.evaluations=500")


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        ("400 of 400 evaluations used", "evaluations=1600"),
        ("500 of 500 evaluations used and speedup 2 or more reached", "all_of.evaluations=2000"),
        *((reason, "") for reason in ENDS.values()),
        ("nothing is left to propose", ""),
        ("speedup 2 or more reached, target 2", ""),
        ("60 evaluations without a clear gain", ""),
    ],
)
def test_a_run_without_a_gain_goes_on_only_with_more_of_what_was_short(slower, reason, more):
    [*advice] = [line for line in said(slower, reason) if "go on" in line]
    assert advice == ([f"  go on     evolve resume demo termination.{more}"] if more else [])


@pytest.fixture(scope="module")
def slower(tmp_path_factory):
    path = tmp_path_factory.mktemp("slower") / "evolve.db"
    with Store.open(path, create=True) as opened:
        record(opened, synthetic_task(), Times(0.5, 0.4), *SLOWER)
        yield opened


def test_a_report_counts_a_winner_as_faster_by_its_verification(tmp_path):
    with Store.open(tmp_path / "evolve.db", create=True) as opened:
        record(opened, synthetic_task(), Times(1.02, 1.5))
        last = funnel(gather(opened, "demo"))[-1]
    assert last.name == "faster than PyTorch eager"
    assert last.count >= 1
