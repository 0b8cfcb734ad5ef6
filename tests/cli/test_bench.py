"""A suite: every task searched by an ordinary run before one judge, and one report over all.

Invariants:
1. Runs are named by suite, level, problem and search; what they are asked for is refused before the
   first of them begins where it cannot be.
2. The same command goes on where it stands and repeats nothing; other baselines measure only what
   is missing; a larger budget continues the searches.
3. A stop, a judge that is gone, and a time limit leave runs that can be resumed, and a report. A
   time limit that is too short for a verdict is refused, in place of calls without an end.
4. A task that has nothing to start from is said so at once, and counts as not solved.
5. Winners are measured again beside all baselines; programs that leave work to vendors stand apart.
6. Searches that share a judge ask for no more at once than their share of it.
"""

import asyncio
import csv
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evolve.app.bench import plan as planning
from evolve.app.bench import runner
from evolve.app.bench.plan import RESERVE_S, BenchConfig, make_plan
from evolve.app.config.compose import compose_other
from evolve.cli.commands.run.bench import report
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Status
from evolve.core.lineage import VERIFY
from evolve.core.protocols import EvaluationRequest
from evolve.report.suite.figures import figures
from evolve.report.suite.results import read_suite
from evolve.search.termination import parse_duration
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator, synthetic_task
from tests.cli.benching import DB, WORDS, bench, planned
from tests.report.page import read

pytestmark = pytest.mark.usefixtures("bench_checkout")

NAMES = ["kernelbench-1-1-seeds", "kernelbench-1-2-seeds", "kernelbench-2-1-seeds"]


class Gone(SyntheticEvaluator):
    """A judge that is gone after so many verdicts."""

    limit = 3

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        if self.calls >= self.limit:
            raise EvaluatorUnavailable("the device is gone")
        return await super().evaluate(request)


class Vendors(SyntheticEvaluator):
    """A judge that finds part of the work done by vendors' libraries."""

    def judge(self, request: EvaluationRequest) -> Evaluation:
        return replace(super().judge(request), custom=False)


def test_runs_are_named_by_suite_level_problem_and_search():
    assert [entry.task.run for entry in planned().entries] == NAMES
    assert [entry.task.title for entry in planned("level=[1]").entries] == ["Softmax", "Matmul"]
    (one,) = planned("problems=[2/1]", "name=mine").entries
    assert (one.task.run, one.task.label) == ("kernelbench-2-1-mine", "2/1")
    shipped = make_plan(["suite=shipped", "problems=[softmax]", "device=cpu"])
    assert shipped.entries[0].task.run == "shipped-softmax-portfolio"
    assert shipped.entries[0].task.category == "softmax"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("suite=kernelbanch", "suite=kernelbanch: there is no such suite"),
        ("path=nowhere", "path=nowhere: suite kernelbench: there is no folder nowhere"),
        ("path=nowhere", "Or give the checkout's folder: path=FOLDER."),
        ("level=[7]", "level=[7]: not in suite kernelbench"),
        ("problems=[1/77]", "no problem '1/77'"),
        ("task=softmax", "bench sets it"),
        ("baselines=[fast]", "baselines=[fast]"),
        ("within=5s", "within=5s: too short for the start of the judge, a verdict of about 45 s"),
        ("within=1m4s", "give e.g. within=2m10s"),
        ("search=nothing", "search=nothing"),
        ("termination.evaluations=none", "termination.evaluations"),
        ("nonsense=1", "nonsense"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(word: str, said: str):
    with pytest.raises(UsageError) as refused:
        planned(word)
    assert said in str(refused.value)
    assert not Path(DB).exists()


def test_every_task_is_searched_and_its_winner_measured_again_beside_the_baselines():
    said: list[str] = []
    judge = SyntheticEvaluator(slots=2)
    assert bench(planned("baselines=[compile]"), judge, say=said.append) == ""
    assert judge.peak == 2
    with Store.open(DB, read_only=True) as store:
        assert sorted(run.name for run in store.runs()) == NAMES
        assert {run.state for run in store.runs()} == {"finished"}
        for run in store.runs():
            (final,) = store.made_by(run.id, VERIFY)
            evaluation = store.evaluation(run.id, final)
            assert evaluation is not None
            assert evaluation.fidelity is Fidelity.SEARCH
            assert evaluation.ratios.keys() == {"eager", "compile"}
    assert len(said) == 3
    assert "custom" in said[0]
    assert "torch.compile" in said[0]


def test_searches_that_share_the_judge_do_not_ask_ahead_of_their_share_of_it():
    class Counting(SyntheticEvaluator):
        most = 0
        under_way: ClassVar[Counter[str]] = Counter()

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            self.under_way[request.task.name] += 1
            if len(+self.under_way) == len(NAMES):
                self.most = max(self.most, *self.under_way.values())
            try:
                return await super().evaluate(request)
            finally:
                self.under_way[request.task.name] -= 1

    judge = Counting(slots=9, latency_s=0.02)
    tuned = ("operators=[seed,tune]", "termination.evaluations=12", "final=none")
    assert bench(planned(*tuned), judge) == ""
    assert judge.most == 4
    assert judge.peak >= 9


@pytest.mark.slow
def test_the_same_command_repeats_nothing_and_other_baselines_only_add_what_is_missing():
    bench(planned("baselines=[compile]"))
    judge = SyntheticEvaluator()
    assert bench(planned("baselines=[compile]"), judge) == ""
    assert judge.calls == 0
    assert bench(planned("baselines=[compile,eager_tf32]"), judge) == ""
    assert judge.calls == 3
    plan = planned()
    with Store.open(DB, read_only=True) as store:
        results = read_suite(store, [entry.task for entry in plan.entries])
    assert results[0].custom is not None
    assert results[0].custom.ratios.keys() == {"eager", "compile", "eager_tf32"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("words", "timed"), [(["baselines=[compile]"], {"eager", "compile"}), ([], {"eager"})]
)
def test_without_finals_baselines_that_are_named_are_timed_beside_every_program(words, timed):
    plan = planned("problems=[1/1]", "final=none", "termination.evaluations=1", *words)
    assert bench(plan) == ""
    with Store.open(DB, read_only=True) as store:
        (step,) = store.steps(store.run(NAMES[0]).id)
        (found,) = read_suite(store, [entry.task for entry in plan.entries])
    assert found.custom is not None
    assert set(step.ratios) == set(found.custom.ratios) == timed


@pytest.mark.slow  # three benches; the same command again is in other tests
def test_another_commit_of_the_suite_goes_on_with_tasks_that_are_the_same():
    judge, said = SyntheticEvaluator(), list[str]()
    git = Path("checkout", ".git")
    git.mkdir()
    for commit, evaluations in (("ab", 2), ("cd", 4)):
        (git / "HEAD").write_text(commit * 20)
        plan = planned("problems=[1/1]", f"termination.evaluations={evaluations}")
        assert bench(plan, judge, say=said.append) == ""
    assert not [line for line in said if "cannot be resumed" in line]
    Path("checkout", "level1", "1_Softmax.py").write_text(f"{synthetic_task().source}\n# other\n")
    bench(planned("problems=[1/1]", "termination.evaluations=6"), judge, say=said.append)
    assert [line for line in said if "has changed since the run was started" in line]


@pytest.mark.slow
def test_what_is_timed_beside_every_program_stays_so_in_later_calls():
    words = ("problems=[1/1]", "search=greedy", "name=x", "baselines=[compile]")
    judge, said = SyntheticEvaluator(), list[str]()
    for final, evaluations in (("none", 2), ("none", 4), ("search", 6)):
        budget = (f"final={final}", f"termination.evaluations={evaluations}")
        assert bench(planned(*words, *budget), judge, say=said.append) == ""
    assert not [line for line in said if "cannot be resumed" in line]
    with Store.open(DB, read_only=True) as store:
        (run,) = store.runs()
        steps = [step for step in store.steps(run.id) if step.ratios]
    assert len(steps) >= 6
    assert all({"eager", "compile"} <= {*step.ratios} for step in steps)


@pytest.mark.slow
def test_a_larger_budget_continues_the_searches():
    words = ("search=greedy", "problems=[1/1]", "name=x")
    bench(planned(*words, "termination.evaluations=3"))
    with Store.open(DB, read_only=True) as store:
        (run,) = store.runs()
        finals = store.made_by(run.id, VERIFY)
    bench(planned(*words, "termination.evaluations=4"))
    with Store.open(DB, read_only=True) as store:
        (run,) = store.runs()
        # The tuner has found what is best of all by then: that is not measured again.
        assert store.made_by(run.id, VERIFY) == finals
        assert len(finals) == 1
        assert store.next_sequence(run.id) > finals[0] + 1
        assert run.config["termination"]["evaluations"] == 4


def test_other_settings_under_the_same_names_are_refused_task_by_task():
    bench(planned())
    said: list[str] = []
    bench(planned("seed=1"), say=said.append)
    assert len(said) == 3
    assert "seed is 0 in the run and 1 now" in said[0]


def test_a_judge_that_is_gone_leaves_runs_that_go_on():
    with pytest.raises(EvaluatorUnavailable):
        bench(planned(), Gone())
    with Store.open(DB, read_only=True) as store:
        assert len(store.runs()) < 3
    assert bench(planned()) == ""
    with Store.open(DB, read_only=True) as store:
        assert {run.state for run in store.runs()} == {"finished"}
        assert all(len(store.made_by(run.id, VERIFY)) == 1 for run in store.runs())


def test_nothing_begins_that_would_not_end_in_time():
    judge = SyntheticEvaluator()
    why = bench(planned(), judge, ends_at=time.monotonic() + 30)
    assert "too little time" in why
    assert judge.calls == 0


def test_a_time_in_which_nothing_can_be_judged_is_refused():
    judge = SyntheticEvaluator()
    with pytest.raises(UsageError, match=r"within=1m10s: too short .* give e\.g\. within=2m20s"):
        bench(planned("within=70s"), judge, ends_at=time.monotonic() + RESERVE_S + 40)
    with pytest.raises(UsageError, match="within=1m10s: too short"):  # the judge took all of it
        bench(planned("within=70s"), judge, ends_at=time.monotonic() + RESERVE_S)
    assert judge.calls == 0


@pytest.mark.parametrize("within_s", [5, 64, 66, 200])
def test_the_time_that_a_refusal_names_is_enough_after_a_slow_start_of_the_judge(within_s: int):
    start_s = max(60, within_s - RESERVE_S)  # of the judge; it leaves nothing of within_s

    def within(seconds: float) -> str:
        plan = planned("problems=[1/1]", f"within={seconds:g}s")
        return bench(plan, ends_at=time.monotonic() + seconds - start_s)

    with pytest.raises(UsageError) as refused:
        within(within_s)
    assert within(parse_duration(str(refused.value).rpartition("within=")[2])) == ""
    with Store.open(DB, read_only=True) as store:
        assert {run.state for run in store.runs()} == {"finished"}


def test_a_task_that_is_ready_in_the_moment_of_the_end_does_not_begin():
    now = time.monotonic()
    assert bench(planned(), ends_at=now + RESERVE_S, verdict_s=-60.0) == "the time is up"
    with Store.open(DB) as store:
        assert not list(store.runs())


@pytest.mark.sample(1)
@pytest.mark.parametrize("calls", [0, 1])
def test_work_that_is_cancelled_without_a_stop_is_no_success(calls: int):
    class Cancelled(SyntheticEvaluator):
        """A judge whose work somebody cancels: in the search, or in the final."""

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if self.calls >= calls:
                raise asyncio.CancelledError
            return await super().evaluate(request)

    with pytest.raises(asyncio.CancelledError):
        bench(planned("problems=[1/1]"), Cancelled())


@pytest.mark.slow
def test_what_does_not_end_when_it_is_given_up_holds_up_nothing(monkeypatch):
    monkeypatch.setattr(runner, "DRAIN_S", 0.2)
    monkeypatch.setattr(runner, "PATIENCE_S", 0.7)

    class Deaf(SyntheticEvaluator):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)
            return await super().evaluate(request)

    plan, end = planned(), time.monotonic() + RESERVE_S + 4
    assert bench(plan, Deaf(), ends_at=end, verdict_s=0.0) == "the time is up"
    assert time.monotonic() < end
    with Store.open(DB) as store:
        assert {run.state for run in store.runs()} == {"interrupted"}


@pytest.mark.slow
@pytest.mark.parametrize(("slow_from", "state"), [(0, "interrupted"), (1, "finished")])
def test_the_end_of_the_time_gives_up_what_is_under_way(slow_from: int, state: str):
    class Slow(SyntheticEvaluator):
        """A judge that takes its time from one verdict on: in the search, or in the final."""

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if self.calls >= slow_from:
                await asyncio.sleep(60)
            return await super().evaluate(request)

    plan, start = planned("problems=[1/1]"), time.monotonic()
    assert bench(plan, Slow(), ends_at=start + RESERVE_S + 2, verdict_s=0.0) == "the time is up"
    assert time.monotonic() - start < 15
    with Store.open(DB, read_only=True) as store:
        (run,) = store.runs()
        assert run.state == state
        assert len(store.made_by(run.id, VERIFY)) == slow_from
    assert bench(plan) == ""
    with Store.open(DB, read_only=True) as store:
        assert len(store.made_by(run.id, VERIFY)) == 1


@pytest.mark.parametrize("name", sorted(BenchConfig.__dataclass_fields__))
def test_every_setting_of_the_suite_is_read(name: str, monkeypatch):
    def without(*words: Any) -> dict[str, Any]:
        return {key: value for key, value in compose_other(*words).items() if key != name}

    monkeypatch.setattr(planning, "compose_other", without)
    with pytest.raises(KeyError, match=name):
        planned()


def test_a_task_without_a_start_is_listed_with_its_reason_and_counts_as_not_solved(capsys):
    plan = make_plan([*WORDS, f"store.path={DB}"])
    assert bench(plan, say=lambda line: None) == ""
    report(plan)
    assert capsys.readouterr().out.count("has no program to start from") == 3
    rows = list(csv.DictReader(Path("runs/kernelbench-seeds.csv").read_text().splitlines()))
    assert all("has no program to start from" in row["reason"] for row in rows)
    page = read(Path("runs/kernelbench-seeds.html").read_text())
    assert page.text.count("has no program to start from") == 3
    with Store.open(DB, read_only=True) as store:
        results = read_suite(store, [entry.task for entry in plan.entries])
    found = figures(results, "custom", "eager")
    assert (found.tasks, found.correct, found.amsr) == (3, 0, 0.0)


def test_programs_that_leave_work_to_vendors_stand_apart_and_are_measured_too():
    plan = planned("baselines=[compile]")
    assert bench(plan, Vendors()) == ""
    with Store.open(DB, read_only=True) as store:
        results = read_suite(store, [entry.task for entry in plan.entries])
    assert all(result.custom is None and result.mixed is not None for result in results)
    assert results[0].mixed is not None
    assert results[0].mixed.ratios.keys() == {"eager", "compile"}
    assert figures(results, "custom", "eager").correct == 0
    assert figures(results, "mixed", "eager").correct == 3


def test_a_winner_that_falls_in_its_final_gives_way_to_the_next():
    class Strict(SyntheticEvaluator):
        def judge(self, request: EvaluationRequest) -> Evaluation:
            verdict = super().judge(request)
            if not request.repeat or "BLOCK = 64" not in request.source:
                return verdict
            return replace(verdict, status=Status.WRONG_VALUE, custom=None, ratios={}, cases=())

    Path("other.py").write_text(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 64") + "\nx = 1\n")
    plan = planned("initial=[mine.py,other.py]", "problems=[1/1]")
    assert bench(plan, Strict()) == ""
    with Store.open(DB, read_only=True) as store:
        (result,) = read_suite(store, [entry.task for entry in plan.entries])
        finals = store.made_by(store.run(NAMES[0]).id, VERIFY)
    assert len(finals) == 2
    assert result.custom is not None
    assert result.custom.sequence == finals[-1]


@pytest.mark.slow
def test_the_command_searches_a_shipped_task_and_leaves_a_report(evolve):
    words = ("task_config.size=tiny", "final=none", "audit=false", "device=cpu", "search=seeds")
    done = evolve("bench", "suite=shipped", "problems=[gelu_bias]", *words, timeout=115)
    assert done.returncode == 0, done.stderr
    assert "1 of 1" in done.stdout
    assert "custom" in done.stdout
    assert Path("runs/shipped-seeds.html").is_file()
    assert "not verified" in done.stdout


def test_help_lists_the_settings_of_the_suite(evolve):
    done = evolve("bench", "--help")
    assert done.returncode == 0
    assert "baselines:" in done.stdout
    assert evolve("bench", "suite=shipped", "--fast").returncode == 2
    assert "KERNELBENCH_PATH" in evolve("bench", "suite=kernelbench", "search=seeds").stderr
