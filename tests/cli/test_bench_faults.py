"""Tasks of a suite that fail by a judge's fault, or by what is beside them.

Invariants:
1. Searches and finals that fail beside others are tried again alone.
2. A reference is given up at once only if it has no kernels.
3. A task under which the judge dies is left out for now, and costs no other task its turn.
4. A judge that fails under every task ends the bench.
"""

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evolve.app.bench.plan import make_plan
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Status
from evolve.core.protocols import EvaluationRequest
from evolve.evaluation import LocalEvaluator, PooledEvaluator
from evolve.report.suite.results import read_suite
from evolve.search.execution.judging import MAX_ATTEMPTS
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator
from tests.cli.benching import DB, WORDS, at_terminal, bench, planned
from tests.operators.output_code import compiled, matrix

pytestmark = pytest.mark.usefixtures("bench_checkout")

SCRIPTED = Path(__file__).parents[1] / "evaluation" / "scripted_worker.py"


class Crowded(SyntheticEvaluator):
    """A judge that runs out of memory where it has two programs at once."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        crowded = self.calls_under_way > 0
        self.calls_under_way += 1
        await asyncio.sleep(0.05)
        verdict = await super().evaluate(request)
        self.calls_under_way -= 1
        if crowded:
            return replace(verdict, status=Status.INFRA, custom=None, ratios={}, cases=())
        return verdict

    calls_under_way = 0


@pytest.mark.slow  # a final that is judged again is below
def test_what_fails_for_its_neighbours_is_judged_again_alone():
    plan = planned("final=none")
    said: list[str] = []
    assert bench(plan, Crowded(slots=9), say=said.append) == ""
    assert any("again alone" in line for line in said)
    with Store.open(DB, read_only=True) as store:
        results = read_suite(store, [entry.task for entry in plan.entries])
        operators = {step.operator for run in store.runs() for step in store.steps(run.id)}
    assert all(result.custom is not None for result in results)
    assert operators == {"seed", "again"}


NO_KERNEL = compiled({"a": matrix(8, 9)}, [], "a")
OUT_OF_MEMORY = "construct: CUDA out of memory"


@pytest.mark.parametrize(
    ("beside", "alone", "asked"),
    [
        (OUT_OF_MEMORY, OUT_OF_MEMORY, 4),
        (UsageError("it does not fit; or free what others hold there"), OUT_OF_MEMORY, 4),
        (OUT_OF_MEMORY, NO_KERNEL, 4),
        (NO_KERNEL, NO_KERNEL, 2),
    ],
)
def test_a_reference_is_given_up_beside_others_only_if_it_has_no_kernels(beside, alone, asked):
    class Compiling(SyntheticEvaluator, PooledEvaluator):
        """A judge that has one answer for references beside others, and one for those alone."""

        asked = under_way = 0

        async def compiled(self, task: Any, variants: Any) -> dict[str, Any]:
            self.asked += 1
            self.under_way += 1
            await asyncio.sleep(0.05)
            answer = beside if self.under_way > 1 or self.asked == 2 else alone
            self.under_way -= 1
            if isinstance(answer, UsageError):
                raise answer
            return dict.fromkeys(variants, answer)

    words = (*WORDS, f"store.path={DB}", "audit=false", "problems=[1/1,1/2]")
    judge, said = Compiling(slots=4), list[str]()
    assert bench(make_plan(words), judge, say=said.append) == ""
    assert judge.asked == asked
    assert sum("again alone" in line for line in said) == asked - 2
    reason = "CUDA out of memory" if alone is OUT_OF_MEMORY else "the compiler wrote no kernel"
    with Store.open(DB, read_only=True) as store:
        for run in store.runs():
            assert run.state == "finished"
            assert "has no program to start from" in run.reason
            assert reason in run.reason


def test_a_final_that_fails_by_a_fault_of_the_judge_is_repeated():
    class Unlucky(SyntheticEvaluator):
        """A judge whose first finals fail, beside others and alone, as often as they are tried."""

        left = 2 * MAX_ATTEMPTS

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            verdict = await super().evaluate(request)
            if request.opponents and self.left:
                self.left -= 1
                return replace(verdict, status=Status.INFRA, custom=None, ratios={}, cases=())
            return verdict

    plan, said = planned("problems=[1/1]"), list[str]()
    judge = Unlucky()
    assert bench(plan, judge, say=said.append) == ""
    assert any("again alone" in line for line in said)
    assert judge.left == 0
    assert bench(plan, judge) == ""
    with Store.open(DB, read_only=True) as store:
        (result,) = read_suite(store, [entry.task for entry in plan.entries])
    assert result.custom is not None
    assert set(result.custom.ratios) == {"eager", "compile"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("dies_at", "skipped"), [("1/2", ["1/2"]), ("1", ["1/1", "2/1"])])
def test_a_reference_that_takes_the_judge_along_costs_no_other_task_its_turn(dies_at, skipped):
    plan = make_plan([*WORDS, f"store.path={DB}", "audit=false"])
    said: list[str] = []

    async def run() -> str:
        command = [sys.executable, "-SE", str(SCRIPTED), dies_at]
        judge = LocalEvaluator({"CPU 0": command}, dict(os.environ), slots=1)
        try:
            with Store.open(DB, create=True) as store:
                return await at_terminal(plan, store, judge, say=said.append).run()
        finally:
            await judge.close()

    assert asyncio.run(run()) == "the judge failed under some tasks"
    assert [line.split(":")[0] for line in said if "left out for now" in line] == skipped
    put_off = [line for line in said if "again alone" in line]  # also those that did not compile
    assert len(put_off) == 3
    ended = [line for line in said if line not in put_off]
    assert sum("has no program to start from" in line for line in ended) == 3 - len(skipped)
    with Store.open(DB, read_only=True) as store:
        results = read_suite(store, [entry.task for entry in plan.entries])
    assert [result.task.label for result in results if not result.ended] == skipped


@pytest.mark.slow  # one that is gone is above
def test_a_judge_that_fails_under_every_task_ends_the_bench():
    plan = make_plan([*WORDS, f"store.path={DB}", "audit=false"])

    async def run() -> None:
        command = [sys.executable, "-SE", str(SCRIPTED), ""]  # every name ends so
        judge = LocalEvaluator({"CPU 0": command}, dict(os.environ), slots=1)
        try:
            with Store.open(DB, create=True) as store:
                await at_terminal(plan, store, judge).run()
        finally:
            await judge.close()

    with pytest.raises(EvaluatorUnavailable):
        asyncio.run(run())
