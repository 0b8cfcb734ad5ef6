"""Invariants of the pipeline:

1. Budgets are exact: never more full evaluations than asked for, whatever the number of slots.
2. The judge's slots are kept busy.
3. A stop of any kind leaves a run that a resume continues without repeating anything.
"""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from evolve.core.errors import EvaluatorUnavailable, StoreError, UsageError
from evolve.core.evaluation import (
    DEVICE_BUSY,
    DEVICE_OOM,
    Evaluation,
    Fidelity,
    Label,
    Stage,
    Status,
)
from evolve.core.lineage import VERIFY
from evolve.core.protocols import Failed
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Scheduled
from evolve.search.termination import from_config
from evolve.store.champion import champion
from evolve.testing.synthetic import OPTIMUM, PEAK_SPEEDUP, SEED_SOURCE, SyntheticEvaluator
from tests.search.conftest import make_search, run_to_end, run_until_stopped, variants

NO_VERDICT = {"status": Status.INFRA, "ratios": {}, "cases": (), "samples": {}, "feedback": "full"}


def test_the_planted_optimum_is_found_and_verified(store, run):
    outcome = run_to_end(make_search(store, run), SyntheticEvaluator(slots=2), evaluations=60)
    winner = champion(store, run)
    assert outcome.finished
    assert winner.verified
    assert winner.ratio.value > 0.9 * PEAK_SPEEDUP
    assert (
        dict(winner.assignment).items()
        >= {**OPTIMUM, "UNROLL": winner.assignment["UNROLL"]}.items()
    )


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_an_evaluation_budget_is_met_exactly(store, run, slots):
    search = make_search(store, run, operators=variants())
    outcome = run_to_end(search, SyntheticEvaluator(slots=slots, latency_s=0.001), evaluations=9)
    counted = [
        step for step in store.steps(run.id) if step.fidelity is Fidelity.SEARCH and step.status
    ]
    assert len(counted) == 9
    assert "9" in outcome.reason


def test_all_slots_are_used(store, run):
    evaluator = SyntheticEvaluator(slots=4, latency_s=0.01)
    run_to_end(make_search(store, run), evaluator, evaluations=12)
    assert evaluator.peak == 4


def test_a_space_that_is_explored_ends_the_run_with_that_reason(store, run):
    outcome = run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=100_000)
    assert outcome.finished
    assert "nothing is left" in outcome.reason


def test_a_stop_request_leaves_a_resumable_run_and_the_resume_repeats_nothing(store, run):
    evaluator = SyntheticEvaluator(slots=2, latency_s=0.005)

    async def interrupted():
        told = []
        pipeline = Pipeline(
            make_search(store, run),
            evaluator,
            from_config({"evaluations": 20}),
            listeners=[
                lambda event: (
                    told.append(event) or (len(told) == 5 and pipeline.request_stop("Ctrl-C"))
                )
            ],
        )
        return await pipeline.run()

    outcome = asyncio.run(interrupted())
    assert not outcome.finished
    assert outcome.reason == "Ctrl-C"
    assert store.run("demo").state == "interrupted"
    before = list(store.steps(run.id))
    outcome = run_to_end(make_search(store, run), evaluator, evaluations=20)
    assert outcome.finished
    after = list(store.steps(run.id))
    assert after[: len(before)] == before
    assert evaluator.calls == sum(1 for step in after if step.status)


def test_evaluations_that_do_not_drain_in_time_are_asked_again(store, run):
    async def interrupted():
        pipeline = Pipeline(
            make_search(store, run),
            SyntheticEvaluator(latency_s=60.0),
            from_config({"evaluations": 3}),
            drain_s=0.05,
        )
        asyncio.get_running_loop().call_later(0.05, pipeline.request_stop, "SIGTERM")
        return await pipeline.run()

    assert not asyncio.run(interrupted()).finished
    [ticket] = store.open_tickets(run.id)
    outcome = run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=3)
    assert outcome.finished
    assert store.step(run.id, ticket.sequence).status is Status.CORRECT


def test_a_stop_file_ends_the_run(store, run, tmp_path: Path):
    (tmp_path / "STOP").touch()

    async def body():
        return await Pipeline(
            make_search(store, run),
            SyntheticEvaluator(),
            from_config({"evaluations": 50}),
            stop_file=tmp_path / "STOP",
        ).run()

    assert "STOP" in asyncio.run(body()).reason
    assert store.progress(run.id).evaluations == 0


def test_a_judge_that_fails_stops_the_run_and_loses_nothing(store, run):
    class Breaking(SyntheticEvaluator):
        async def evaluate(self, request):
            if self.calls == 4:
                raise EvaluatorUnavailable("the device fell off the bus")
            return await super().evaluate(request)

    with pytest.raises(EvaluatorUnavailable):
        run_to_end(make_search(store, run), Breaking(), evaluations=20)
    assert store.run("demo").state == "interrupted"
    assert len([step for step in store.steps(run.id) if step.status]) == 4
    assert run_to_end(make_search(store, run), SyntheticEvaluator(), evaluations=20).finished


@pytest.mark.parametrize(
    ("labels", "calls"),
    [((), 3), ((Label(DEVICE_OOM, "8 GiB"),), 1), ((Label(DEVICE_BUSY, "by others"),), 1)],
)
def test_our_own_fault_is_retried_and_then_recorded_without_a_score(store, run, labels, calls):
    """Want of memory is not, nor a device that others use: the judge has tried alone already."""

    class Faulty(SyntheticEvaluator):
        async def evaluate(self, request):
            self.calls += 1
            return Evaluation(
                status=Status.INFRA,
                stage=Stage.NONE,
                fidelity=request.fidelity,
                task_revision=request.task.revision,
                device_class=self.device_class,
                evaluator_version=self.evaluator_version,
                labels=labels,
            )

    evaluator = Faulty()
    run_to_end(make_search(store, run), evaluator, evaluations=1, proposals=1)
    assert evaluator.calls == calls
    assert store.step(run.id, 0).status is Status.INFRA
    assert champion(store, run) is None


def test_an_identical_evaluation_is_answered_from_the_store(store, run):
    first = SyntheticEvaluator()
    run_to_end(make_search(store, run), first, evaluations=6)
    other = store.create_run(name="other", task=run.task, config=dict(run.config), seed=run.seed)
    second = SyntheticEvaluator()
    run_to_end(make_search(store, other), second, evaluations=6)
    assert second.calls <= 2  # the verification of the champion is never answered from the store
    assert champion(store, other).ratio.value == pytest.approx(champion(store, run).ratio.value)
    answered = [step for step in store.steps(other.id) if step.operator != "verify"]
    assert sum(step.device_time_s for step in answered) == 0.0


def test_a_users_baseline_is_judged_once_and_timed_beside_every_candidate(store, run):
    mine = {"file:mine.py": "class ModelNew:\n    pass\nBLOCK = 128\n"}
    search = make_search(store, run, baseline="file:mine.py", opponents=mine)
    run_to_end(search, SyntheticEvaluator(), evaluations=5)
    run_to_end(
        make_search(store, run, baseline="file:mine.py", opponents=mine),
        SyntheticEvaluator(),
        evaluations=6,
    )
    steps = list(store.steps(run.id))
    assert [step.operator for step in steps].count("baseline") == 1
    assert steps[0].operator == "baseline"
    assert all("file:mine.py" in step.ratios for step in steps if step.operator == "tune")


def test_a_users_baseline_that_is_wrong_stops_the_run_with_the_reason(store, run):
    mine = {"file:mine.py": "BLOCK = 128\n"}  # defines no ModelNew
    search = make_search(store, run, baseline="file:mine.py", opponents=mine)
    with pytest.raises(
        UsageError, match=r"file:mine\.py fails the check itself \(invalid_interface\)"
    ):
        run_to_end(search, SyntheticEvaluator(), evaluations=5)
    assert store.run("demo").state == "interrupted"


def test_a_users_baseline_that_a_stop_cut_short_is_judged_before_anything_else(store, run):
    mine = {"file:mine.py": "BLOCK = 128\n"}  # defines no ModelNew
    parts = {"baseline": "file:mine.py", "opponents": mine}
    run_until_stopped(make_search(store, run, **parts), SyntheticEvaluator(latency_s=60.0))
    assert [ticket.operator for ticket in store.open_tickets(run.id)] == ["baseline"]
    evaluator = SyntheticEvaluator()
    with pytest.raises(
        UsageError, match=r"file:mine\.py fails the check itself \(invalid_interface\)"
    ):
        run_to_end(make_search(store, run, **parts), evaluator, evaluations=5)
    assert evaluator.calls == 1


def test_our_own_fault_on_a_users_baseline_is_no_word_against_it(store, run):
    class Faulty(SyntheticEvaluator):
        def judge(self, request):
            return replace(super().judge(request), **NO_VERDICT)

    parts = {"baseline": "file:mine.py", "opponents": {"file:mine.py": SEED_SOURCE}}
    for _ in range(2):
        with pytest.raises(EvaluatorUnavailable, match=r"file:mine\.py could not be judged: full"):
            run_to_end(make_search(store, run, **parts), Faulty(), evaluations=2)
    assert run_to_end(
        make_search(store, run, **parts), SyntheticEvaluator(), evaluations=2
    ).finished
    last = store.made_by(run.id, "baseline")[-1]
    assert store.step(run.id, last).status is Status.CORRECT


def test_a_users_baseline_may_also_be_a_program_to_start_from(store, run):
    mine = {"file:mine.py": SEED_SOURCE}
    search = make_search(store, run, baseline="file:mine.py", opponents=mine)
    run_to_end(search, SyntheticEvaluator(), evaluations=4)
    assert "seed" in [step.operator for step in store.steps(run.id) if step.status]
    assert champion(store, run).ratio.is_gain


def test_a_verdict_against_another_text_of_the_same_baseline_is_never_reused(store, run):
    ratios = []
    for name, block in (("one", 16), ("two", 128)):
        mine = {"file:mine.py": SEED_SOURCE.replace("BLOCK = 16", f"BLOCK = {block}")}
        config = {"baseline": "file:mine.py"}
        other = store.create_run(name=name, task=run.task, config=config, seed=1)
        search = make_search(store, other, baseline="file:mine.py", opponents=mine)
        run_to_end(search, SyntheticEvaluator(), evaluations=1)
        ratios.append(store.evaluation(other.id, 1).ratios["file:mine.py"].value)
    assert ratios[0] > 2 * ratios[1]


def test_proposals_of_an_earlier_sitting_are_evaluated_even_at_the_limit(store, run):
    search = make_search(store, run, operators=variants())
    waiting = [search.ask() for _ in range(3)]
    run_to_end(make_search(store, run, operators=variants()), SyntheticEvaluator(), proposals=3)
    assert store.open_tickets(run.id) == []
    assert all(store.step(run.id, ticket.sequence).status for ticket in waiting)


def test_a_verification_is_no_proposal(store, run):
    run_to_end(make_search(store, run, operators=variants()), SyntheticEvaluator(), proposals=3)
    assert store.made_by(run.id, VERIFY)
    assert store.progress(run.id).proposals == 3


def test_a_limit_on_proposals_is_not_overshot_by_failures(store, run):
    class Failing:
        parents = 0

        def propose(self, context):
            return Failed("broken")

    search = make_search(store, run, operators={"failing": Scheduled(operator=Failing())})
    run_to_end(search, SyntheticEvaluator(), proposals=3)
    assert store.progress(run.id).proposals == 3
    outcome = run_to_end(search, SyntheticEvaluator(), proposals=1000)
    assert "in a row gave no program, the last: broken" in outcome.reason


def test_a_listener_that_raises_loses_no_verdict(store, run):
    def listener(event):
        raise RuntimeError("the terminal is gone")

    async def body():
        search = make_search(store, run, operators=variants())
        limits = from_config({"evaluations": 8})
        await Pipeline(search, SyntheticEvaluator(slots=4), limits, listeners=[listener]).run()

    with pytest.raises(RuntimeError):
        asyncio.run(body())
    assert store.progress(run.id).evaluations == 4
    assert store.open_tickets(run.id) == []


def test_stops_do_not_use_up_the_attempts_of_a_candidate(store, run):
    async def interrupted():
        pipeline = Pipeline(
            make_search(store, run),
            SyntheticEvaluator(latency_s=60.0),
            from_config({"evaluations": 3}),
            drain_s=0.01,
        )
        asyncio.get_running_loop().call_later(0.02, pipeline.request_stop, "SIGTERM")
        await pipeline.run()

    for _ in range(5):
        asyncio.run(interrupted())
    [ticket] = store.open_tickets(run.id)
    assert ticket.attempts == 0


def test_what_is_under_way_is_given_up_also_where_nothing_can_be_stored_any_more(store, run):
    class Slow(SyntheticEvaluator):
        """The first verdict comes when a second one is under way, all others never."""

        given_up = 0
        second = asyncio.Event()

        async def evaluate(self, request):
            self.calls += 1
            if self.calls == 1:
                await self.second.wait()
                with closing(
                    sqlite3.connect(store.location)
                ) as connection:  # somebody takes it over
                    connection.execute("UPDATE lease SET owner = 'another'")
                    connection.commit()
                return self.judge(request)
            self.second.set()
            try:
                await asyncio.sleep(60)
            finally:
                self.given_up += 1

    async def body():
        pipeline = Pipeline(search, evaluator, from_config({"evaluations": 8}))
        with pytest.raises(StoreError):
            await pipeline.run()
        return asyncio.all_tasks() - {asyncio.current_task()}

    search, evaluator = make_search(store, run, operators=variants()), Slow(slots=2)
    assert asyncio.run(body()) == set()
    assert (evaluator.calls, evaluator.given_up) == (2, 1)


def test_verifications_and_the_users_baseline_are_not_counted_as_evaluations(store, run):
    mine = {"file:mine.py": SEED_SOURCE}
    search = make_search(store, run, baseline="file:mine.py", opponents=mine)
    run_to_end(search, SyntheticEvaluator(), evaluations=2)
    assert store.progress(run.id).evaluations == 2


def test_wall_time_is_counted_over_resumes(store, run):
    search = make_search(store, run)
    run_to_end(search, SyntheticEvaluator(latency_s=0.02), evaluations=3)
    first = store.progress(run.id).wall_time_s
    run_to_end(make_search(store, run), SyntheticEvaluator(latency_s=0.02), evaluations=6)
    assert store.progress(run.id).wall_time_s > first > 0.05


def test_a_limit_on_device_time_includes_the_verification(store, run):
    """An evaluation of the synthetic judge costs a second of device time, a verification three."""
    search = make_search(store, run, operators=variants())
    outcome = run_to_end(search, SyntheticEvaluator(slots=2), device_time=20)
    assert "of 20s device time used, too little is left" in outcome.reason
    assert champion(store, run).verified
    assert 12 <= store.progress(run.id).device_time_s <= 20


@pytest.mark.slow  # waits for the end of the time twice; the next test has such an evaluation
def test_a_judge_is_freed_of_what_was_given_up_before_it_verifies(store, run):
    class Busy(SyntheticEvaluator):
        """Does not end what nobody waits for any more, unless it is told to."""

        hangs = False

        async def evaluate(self, request):
            if self.hangs:
                await asyncio.sleep(60)
            self.hangs = request.fidelity is Fidelity.SEARCH
            return await super().evaluate(request)

        def free(self):
            self.hangs = False

    async def body():
        judge = Busy(latency_s=0.1)
        limits = from_config({"wall_time": 1.5})
        return await Pipeline(
            make_search(store, run), judge, limits, late_s=2.0, free_judge=judge.free
        ).run()

    assert asyncio.run(body()).finished
    assert champion(store, run).verified
    [left] = store.open_tickets(run.id)
    assert left.attempts == 0


def test_an_evaluation_that_ends_soon_is_waited_for_as_a_new_judge_would_take_longer(store, run):
    class Slow(SyntheticEvaluator):
        """Takes longer than before, from its second evaluation on."""

        async def evaluate(self, request):
            is_search = request.fidelity is Fidelity.SEARCH
            self.latency_s = 1.2 if is_search and self.calls else 0.1
            return await super().evaluate(request)

    freed = []

    async def body():
        limits = from_config({"wall_time": 1.0})
        free = partial(freed.append, True)
        return await Pipeline(
            make_search(store, run), Slow(), limits, late_s=3.0, free_judge=free
        ).run()

    assert asyncio.run(body()).finished
    assert champion(store, run).verified
    assert not freed
    assert store.open_tickets(run.id) == []


def test_a_run_whose_verification_does_not_end_in_time_says_so_and_can_go_on(store, run):
    class Slow(SyntheticEvaluator):
        """Its verifications never end."""

        async def evaluate(self, request):
            if request.fidelity is Fidelity.VERIFY:
                await asyncio.sleep(60)
            return await super().evaluate(request)

    async def body():
        limits = from_config({"wall_time": 0.3})
        return await Pipeline(make_search(store, run), Slow(), limits, late_s=0.3).run()

    outcome = asyncio.run(body())
    assert "; the verification of the best kernel did not end in time" in outcome.reason
    assert not outcome.finished
    assert champion(store, run) is not None
    assert run_to_end(make_search(store, run), SyntheticEvaluator(), wall_time=60).finished
    assert champion(store, run).verified
