"""The order of a suite's work: begun tasks are finished before more are begun.

Invariants:
1. A winner is measured again beside the searches of the next tasks, and no search waits for it. Two
   finalists of a task are measured at the same time.
2. Finals have most of the slots while searches are left, and all of them afterwards, also if each
   winner has two finalists; of a single slot they take turns.
3. Tasks that an earlier call left behind come first, those nearest to their end before others.
4. A final begins only if it is expected to end in time, by how long earlier ones took; what is left
   behind is finished by the next call, which repeats nothing. A time in which no call would measure
   it is refused.
"""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from evolve.app.bench.plan import RESERVE_S
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.lineage import VERIFY
from evolve.core.protocols import EvaluationRequest
from evolve.report.suite.results import read_suite
from evolve.store import Store
from evolve.testing.synthetic import SEED_SOURCE, SyntheticEvaluator
from tests.cli.benching import DB, bench, planned

pytestmark = pytest.mark.usefixtures("bench_checkout")


class Recording(SyntheticEvaluator):
    """A judge that notes beginnings and ends, and whose finals take their time."""

    final_s = 0.0
    said_s = 0.0  # what a final's record says of its own time

    def __init__(self, *, slots: int = 4, final_s: float = 0.0, said_s: float = 0.0) -> None:
        super().__init__(slots=slots)
        self.final_s, self.said_s = final_s, said_s
        self.seen: list[tuple[str, str]] = []
        self.finals = 0

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        kind = "final" if request.repeat else "search"
        self.seen.append((kind, request.task.name))
        self.finals += kind == "final"
        if kind == "final":
            await asyncio.sleep(self.final_s)
        verdict = await super().evaluate(request)
        self.finals -= kind == "final"
        self.seen.append((f"{kind} ended", request.task.name))
        if kind == "final":
            return replace(verdict, durations_s={"tools": self.said_s, "timing_lock": 1e6})
        return verdict


def begun(judge: Recording, kind: str) -> list[str]:
    """The tasks of evaluations of a kind, in the order of their beginning."""
    return list(dict.fromkeys(name for what, name in judge.seen if what == kind))


def test_a_winner_is_measured_beside_the_searches_of_the_next_tasks():
    judge = Recording(final_s=0.5)
    assert bench(planned("baselines=[compile]"), judge) == ""
    kinds = [kind for kind, _ in judge.seen]
    assert kinds.count("final ended") == 3
    last_search = max(at for at, kind in enumerate(kinds) if kind == "search")
    assert last_search < kinds.index("final ended")


class Mixed(Recording):
    """A judge that finds vendors' work in the faster of two programs."""

    most = beside = 0  # finals at once, and when a search was judged

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        if request.repeat:
            self.most = max(self.most, self.finals + 1)
        else:
            self.beside = max(self.beside, self.finals)
        return await super().evaluate(request)

    def judge(self, request: EvaluationRequest) -> Evaluation:
        return replace(super().judge(request), custom="BLOCK = 64" not in request.source)


@pytest.fixture
def two_programs() -> str:
    """Makes a search find a custom program, and a faster mixed one."""
    Path("other.py").write_text(SEED_SOURCE.replace("BLOCK = 16", "BLOCK = 64") + "\nx = 1\n")
    return "initial=[mine.py,other.py]"


def test_two_finalists_of_a_task_are_measured_at_the_same_time(two_programs):
    judge = Mixed(final_s=0.3)
    plan = planned(two_programs, "problems=[1/1]", "baselines=[compile]")
    assert bench(plan, judge) == ""
    assert judge.most == 2
    with Store.open(DB, read_only=True) as store:
        (result,) = read_suite(store, [entry.task for entry in plan.entries])
    assert result.custom is not None
    assert result.mixed is not None
    assert set(result.custom.ratios) == set(result.mixed.ratios) == {"eager", "compile"}
    assert result.custom.sequence != result.mixed.sequence


@pytest.mark.parametrize(("slots", "most", "beside"), [(1, 1, 0), (2, 2, 1)])
def test_finals_leave_slots_to_searches_if_there_are_several(slots, most, beside):
    judge = Mixed(slots=slots, final_s=0.5)
    assert bench(planned("baselines=[compile]"), judge) == ""
    assert (judge.most, judge.beside) == (most, beside)


@pytest.mark.parametrize("slots", [2, 4, 5])
def test_no_slot_idles_while_winners_with_two_finalists_wait(slots, two_programs):
    words = (two_programs, "baselines=[compile]")
    assert bench(planned(*words, "final=none"), Mixed()) == ""
    judge = Mixed(slots=slots, final_s=0.3)
    assert bench(planned(*words), judge) == ""
    assert [kind for kind, _ in judge.seen].count("final") == 6
    assert judge.most == slots


def test_finals_of_two_finalists_have_three_of_four_slots_beside_a_search(two_programs):
    class Late(Mixed):
        """A judge whose last task is searched until three finals are under way, and longer."""

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if request.task.name == "kernelbench:2/1" and not request.repeat:
                async with asyncio.timeout(20):
                    while self.finals < 3:
                        await asyncio.sleep(0.01)
                await asyncio.sleep(0.2)
            return await super().evaluate(request)

    judge = Late(slots=4, final_s=1.0)
    assert bench(planned(two_programs, "baselines=[compile]"), judge) == ""
    assert judge.beside == 3


def test_what_an_earlier_call_left_behind_comes_first_and_nearest_to_its_end():
    words = ("operators=[seed,tune]", "termination.evaluations=2")
    bench(planned(*words, "problems=[2/1]", "final=none"), Recording(slots=1))

    class Gone(Recording):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if len(self.seen) == 4:
                raise KeyboardInterrupt
            return await super().evaluate(request)

    with pytest.raises(KeyboardInterrupt):
        bench(planned(*words, "problems=[1/2]"), Gone(slots=1))
    judge = Recording(slots=1)
    assert bench(planned(*words), judge) == ""
    assert begun(judge, "final") == ["kernelbench:2/1", "kernelbench:1/2", "kernelbench:1/1"]
    assert begun(judge, "search") == ["kernelbench:1/2", "kernelbench:1/1"]


def test_a_final_that_would_not_end_in_time_is_left_to_the_next_call():
    words = ("baselines=[compile]", "problems=[1/1,1/2]")
    bench(planned(*words, "problems=[1/1]"), Recording(said_s=40.0))
    judge = Recording()
    ends_at = time.monotonic() + RESERVE_S + 30.0
    why = bench(planned(*words), judge, ends_at=ends_at, verdict_s=1.0)
    assert why == "too little time is left for the measurement of 1 winner"
    assert begun(judge, "search") == ["kernelbench:1/2"]
    assert not begun(judge, "final")
    with Store.open(DB, read_only=True) as store:
        run = store.run("kernelbench-1-2-seeds")
        assert run.state == "finished"
        assert not store.made_by(run.id, VERIFY)
    ends_at = time.monotonic() + RESERVE_S + 30.0
    with pytest.raises(UsageError, match=r"within=1m10s: too short .* a verdict of about 40 s"):
        bench(planned(*words, "within=70s"), judge, ends_at=ends_at, verdict_s=1.0)
    judge = Recording()
    assert bench(planned(*words), judge) == ""
    assert [kind for kind, _ in judge.seen] == ["final", "final ended"]
    assert begun(judge, "final") == ["kernelbench:1/2"]


@pytest.mark.parametrize(("slots", "finals"), [(1, 0), (4, 2)])
def test_two_finalists_that_take_turns_need_the_time_of_both(slots, finals, two_programs):
    words = (two_programs, "baselines=[compile]")
    bench(planned(*words, "problems=[1/2]"), Mixed(said_s=20.0))
    bench(planned(*words, "problems=[1/1]", "final=none"), Mixed())
    judge = Mixed(slots=slots)
    ends_at = time.monotonic() + RESERVE_S + 30.0
    bench(planned(*words, "problems=[1/1,1/2]"), judge, ends_at=ends_at, verdict_s=1.0)
    assert [kind for kind, _ in judge.seen].count("final") == finals


def test_a_call_that_measures_some_of_the_winners_has_got_on():
    words = ("baselines=[compile]", "problems=[1/1,1/2]", "within=70s")
    assert bench(planned(*words, "final=none")) == ""
    judge = Recording(slots=1, said_s=40.0)
    ends_at = time.monotonic() + RESERVE_S + 30.0
    why = bench(planned(*words), judge, ends_at=ends_at, verdict_s=1.0)
    assert why == "too little time is left for the measurement of 1 winner"
    assert [kind for kind, _ in judge.seen] == ["final", "final ended"]


def test_what_is_measured_already_needs_no_time():
    words = ("baselines=[compile]", "problems=[1/1]")
    bench(planned(*words), Recording(said_s=40.0))
    assert bench(planned(*words), Recording(), ends_at=time.monotonic() + RESERVE_S + 5.0) == ""


def test_a_judge_that_is_gone_ends_finals_and_searches_and_the_next_call_goes_on():
    class Gone(Recording):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            if self.finals == 2:
                raise EvaluatorUnavailable("the device is gone")
            return await super().evaluate(request)

    judge = Gone(final_s=60.0)
    began = time.monotonic()
    with pytest.raises(EvaluatorUnavailable):
        bench(planned("baselines=[compile]"), judge)
    assert time.monotonic() < began + 30
    judge = Recording()
    assert bench(planned("baselines=[compile]"), judge) == ""
    with Store.open(DB, read_only=True) as store:
        assert {run.state for run in store.runs()} == {"finished"}
        assert all(len(store.made_by(run.id, VERIFY)) == 1 for run in store.runs())
