"""Methods that go step by step do so, however many calls a model takes at once.

Invariants:
1. With `schedule.batch` an answer is asked for when all steps of the rounds before it are judged.
2. A round asks for all its answers at once.
3. Tunings are no steps: they go on beside an answer.
4. The next round of a run that was resumed waits for what was left behind.
"""

import asyncio
from pathlib import Path

import pytest

from evolve.app import components
from evolve.core.errors import UsageError
from evolve.core.model import ModelReply, ModelRequest
from evolve.search.execution.pipeline import Pipeline
from evolve.search.schedule import Bandit, Shares
from evolve.store import Store
from evolve.testing.synthetic import SyntheticEvaluator
from tests.search.models import ScriptedModel
from tests.search.preset_run import other_programs, searched

BATCHES = {"adaevolve": 1, "dr_kernel": 1, "mtmc": 1, "kernel_smith": 1, "geak": 8, "polca": 5}
PROPOSALS = 24


class Watching:
    """A script that notes, for each answer, how many steps had no verdict when it was asked for."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.open: list[int] = []

    def __call__(self, request: ModelRequest, number: int) -> ModelReply:
        tickets = self.store.open_tickets(self.store.run("demo").id)
        self.open.append(sum(ticket.operator != "tune" for ticket in tickets))
        return other_programs(request, number)


@pytest.mark.slow
@pytest.mark.parametrize("preset", BATCHES)
def test_an_answer_knows_what_came_of_all_rounds_before_it(preset: str, store: Store):
    """With eight calls at once the lineage of Dr. Kernel was three deep in place of six."""
    watching = Watching(store)
    model = ScriptedModel(script=watching, slots=8, latency_s=0.002)
    judge = SyntheticEvaluator(latency_s=0.004, slots=2)
    limits = (f"termination.proposals={PROPOSALS}", "termination.wall_time=null")
    searched(store, f"search={preset}", *limits, model=model, judge=judge, serial=False)
    most = BATCHES[preset] + (preset == "polca") * 5  # its measurements are steps of the round
    assert max(watching.open) <= most
    assert store.progress(store.run("demo").id).tunings > 0


@pytest.mark.slow
def test_a_batch_is_asked_for_at_once(store: Store):
    watching = Watching(store)
    model = ScriptedModel(script=watching, slots=8, latency_s=0.002)
    words = ("search=best_of_n", "termination.proposals=25", "schedule.batch=8")
    searched(store, *words, model=model, judge=SyntheticEvaluator(latency_s=0.05), serial=False)
    assert watching.open[:16] == [8] * 16


def test_a_round_waits_for_what_an_earlier_sitting_left_behind(tmp_path: Path):
    with Store.open(tmp_path / "evolve.db", create=True) as store:
        words = ("search=dr_kernel", "operators.tune=null", "termination.proposals=6")
        model = ScriptedModel(script=Watching(store), slots=8, latency_s=0.002)
        _, run = searched(store, *words, model=model, serial=False)
        config = run.config | {"termination": run.config["termination"] | {"proposals": 12}}
        search = components.build_search(store, run, config, model=model)
        for number in range(3):
            search.offer(f"class ModelNew:\n    OFFERED = {number}\n")
        watching = Watching(store)
        model.script = watching
        judge, limit = SyntheticEvaluator(latency_s=0.01), components.build_termination(config)
        asyncio.run(Pipeline(search, judge, limit, verify=False).run())
        assert watching.open == [1] * len(watching.open)
        assert watching.open


@pytest.mark.parametrize("schedule", [Shares, Bandit])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_batch_that_is_none_is_refused(schedule, wrong):
    with pytest.raises(UsageError, match=r"schedule\.batch"):
        schedule(batch=wrong)
