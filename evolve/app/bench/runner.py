"""The runs of a bench: several under way before one judge, until all are done or time is up.

Each run is an ordinary one of the database. While one task is timed, others are checked, and the
references of the next are compiled. Begun tasks are finished first: a winner is measured beside
the searches of the next tasks, runs that an earlier call began come before new ones.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from evolve.app import components
from evolve.app.bench.plan import RESERVE_S, VERDICT_S, Entry, Plan, too_short
from evolve.app.bench.schedule import FinalTimes, Slots, begun_first
from evolve.app.compiler_seeds import NoStart, with_compiled
from evolve.app.estimate.reference import reference_of
from evolve.app.inputs import load_task
from evolve.app.library.events import EventFrontend
from evolve.app.session import is_done, keep
from evolve.app.team import quotas
from evolve.app.validation import read_request
from evolve.core.errors import EvaluatorUnavailable, EvolveError, UsageError
from evolve.core.evaluation import Status
from evolve.core.protocols import Evaluator
from evolve.core.run_store import RunStore
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator
from evolve.evaluation.share import Share
from evolve.report.audit import Findings, findings_of
from evolve.report.suite.results import read_result, task_line
from evolve.report.text import count_text, one_line
from evolve.search.engine import Search
from evolve.search.execution.final_evaluation import (
    evaluations_left,
    judge_again,
    play_finals,
    unjudged,
)
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow
from evolve.trackers import Feed

DRAIN_S = 5.0
PATIENCE_S = 8.0  # after a stop, for work that does not end by itself
MAX_WHY = 150  # characters
MAX_SKIPPED = 3  # tasks in a row under which the judge failed: it is not the tasks
TIME_IS_UP = "the time is up"

T = TypeVar("T")


class Bench:
    """Searches every task of a plan that is not done.

    Args:
        plan: the runs to make.
        store: the database of all runs.
        evaluator: the judge of all runs.
        ends_at: when to have given up, on the clock of `time.monotonic`; None: when all is done.
        verdict_s: seconds that a verdict is assumed to take while none says more: the first of a
            new task, which is made ready for it, and one of a final.
        say: takes lines of progress.
        interruptible: a block within which a request to stop calls its argument with the reason.
    """

    def __init__(
        self,
        plan: Plan,
        store: RunStore,
        evaluator: Evaluator,
        *,
        ends_at: float | None = None,
        verdict_s: float = VERDICT_S,
        say: Callable[[str], None],
        interruptible: Callable[[Callable[[str], None]], AbstractContextManager[None]],
    ) -> None:
        self._plan, self._store, self._evaluator = plan, store, evaluator
        self._ends_at, self._verdict_s = ends_at, verdict_s
        self._say, self._interruptible = say, interruptible
        self._begun_runs = {run.name for run in self._runs()}
        self._slots = Slots(evaluator.slots, len(plan.entries))
        self._final_times = FinalTimes(verdict_s)
        self._pipelines: set[Pipeline] = set()
        self._under_way: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._reasons: list[str] = []
        self._ended = 0
        self._not_begun = 0  # tasks for which too little time was left
        self._unmeasured = 0  # winners for which too little time was left
        self._alone: list[Entry] = []
        self._skipped_in_a_row = 0
        self._has_skipped = False
        if ends_at is not None and plan.final is not None:
            for run in self._runs():
                self._final_times.learn(store, run.id, plan.final)

    async def run(self) -> str:
        """Search until all is done; why it ended before that, empty if it did not.

        Raises:
            UsageError: the time is too short for a verdict.
            EvolveError: the judge or the database cannot be used; interrupted runs can be resumed.
        """
        stored, alarm = self._stored() if self._plan.within_s else 0, None
        if self._ends_at is not None:
            left_s = max(self._left_s(), 0.0)
            alarm = asyncio.get_running_loop().call_later(left_s, self._end, TIME_IS_UP)
        try:
            with self._interruptible(self._end):
                await self._all(map(self._task, begun_first(self._plan.entries, self._store)))
                for entry in self._alone:
                    await self._all([self._task(entry, alone=True)])
        finally:
            if alarm is not None:
                alarm.cancel()
        self._refuse_short_time(stored)
        return self._why()

    async def _task(self, entry: Entry, *, alone: bool = False) -> None:
        """A task from its search to its line of the report.

        Searches are begun in the order of the tasks, a few at once. A winner is measured beside the
        searches of the next tasks; `alone`, after all tasks, nothing else is under way.
        """
        try:
            async with self._slots.search():
                self._may_begin(entry)
                began = time.monotonic()
                run, config = await self._begun(entry, alone=alone)
                if not is_done(run, config):
                    await self._search(run, config)
                if alone and not self._stop.is_set():
                    await judge_again(self._engine(run, config), self._evaluator, self._stop)
            run = self._store.run(run.name)
            failed = not self._stop.is_set() and await self._final(run, config)
            if self._stop.is_set():
                return
            self._skipped_in_a_row = 0
            if not alone and (failed or unjudged(self._store, run.id)):
                raise _Failed("by a fault of the judge something has no verdict")
        except _Failed as failure:
            self._put_off(entry, failure, alone=alone)
        except UsageError as error:
            quotas.refuse_over_quota(entry.config)  # of all tasks to come, so it ends the bench
            self._say(f"{entry.task.label}: {error}")
        except _GivenUp:
            return
        else:
            self._report(entry, time.monotonic() - began)

    def _may_begin(self, entry: Entry) -> None:
        """Raise _GivenUp if nothing of a task can end in time: a new one is made ready first.

        Searches are begun although they may not end: the next call goes on with them, and until
        then the judge would have nothing to do.
        """
        if self._stop.is_set():
            raise _GivenUp
        if self._left_s() <= (0.0 if entry.task.run in self._begun_runs else self._verdict_s):
            self._not_begun += 1
            raise _GivenUp

    async def _final(self, run: RunRow, config: Mapping[str, Any]) -> bool:
        """Whether a final failed by a fault of the judge. Raises _GivenUp if none may begin."""
        fidelity, baselines = self._plan.final, self._plan.baselines
        if fidelity is None or run.state != "finished":
            return False
        engine = self._engine(run, config)
        if not (count := evaluations_left(engine, baselines)):
            return False
        async with self._slots.final(count) as at_once:
            turns = math.ceil(count / at_once)
            if self._left_s() < turns * self._final_times.expected_s:
                self._unmeasured += 1
                raise _GivenUp
            failed = await play_finals(
                engine, self._evaluator, baselines, fidelity, self._stop, at_once=at_once
            )
        self._final_times.learn(self._store, run.id, fidelity)
        return failed

    def _put_off(self, entry: Entry, why: object, *, alone: bool) -> None:
        """Leave a task for when nothing else is under way, and then to a later call.

        Raises:
            EvaluatorUnavailable: it is not the tasks.
        """
        if not alone:
            self._alone.append(entry)
            self._say(f"{entry.task.label}: again alone, {one_line(str(why), MAX_WHY)}")
            return
        self._skipped_in_a_row += 1
        self._has_skipped = True
        self._say(f"{entry.task.label}: left out for now, the judge failed: {why}")
        if self._skipped_in_a_row >= MAX_SKIPPED:
            raise EvaluatorUnavailable(str(why))

    def _report(self, entry: Entry, seconds: float) -> None:
        result = read_result(self._store, entry.task, self._store.run(entry.task.run))
        self._ended += 1
        number = f"{self._ended} of {len(self._plan.entries)}"
        self._say(f"{number}: {task_line(result, self._plan.baselines)} | {seconds:.1f} s")

    async def _all(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Work side by side; a failure asks all the other work to end, and is raised then."""

        async def guarded(work: Coroutine[Any, Any, None]) -> None:
            try:
                await work
            except EvolveError as error:
                self._end(str(error))
                raise

        self._under_way = [asyncio.create_task(guarded(work)) for work in works]
        for end in await asyncio.gather(*self._under_way, return_exceptions=True):
            is_given_up = self._reasons and isinstance(end, asyncio.CancelledError)
            if isinstance(end, BaseException) and not is_given_up:
                raise end

    def _end(self, reason: str) -> None:
        """Ask all work to end, and cancel what does not."""
        self._reasons.append(reason)
        self._stop.set()
        for pipeline in self._pipelines:
            pipeline.request_stop(reason)
        for task in self._under_way:
            asyncio.get_running_loop().call_later(PATIENCE_S, task.cancel)

    def _why(self) -> str:
        """Why it ended before all was done."""
        if self._reasons:
            return self._reasons[0]
        if self._not_begun:
            return "too little time is left for another task"
        if self._unmeasured:
            winners = count_text(self._unmeasured, "winner")
            return f"too little time is left for the measurement of {winners}"
        return "the judge failed under some tasks" if self._has_skipped else ""

    def _left_s(self) -> float:
        """Seconds in which work may be under way."""
        return math.inf if self._ends_at is None else self._ends_at - RESERVE_S - time.monotonic()

    def _runs(self) -> list[RunRow]:
        """Runs of the plan that are stored."""
        runs = {run.name: run for run in self._store.runs()}
        return [runs[entry.task.run] for entry in self._plan.entries if entry.task.run in runs]

    def _stored(self) -> int:
        """How many runs, calls of models, and verdicts of searches and finals are stored."""
        return sum(
            1
            + self._store.progress(run.id).calls
            + sum(step.status not in (None, Status.INFRA) for step in self._store.steps(run.id))
            for run in self._runs()
        )

    def _refuse_short_time(self, stored: int) -> None:
        """Raise UsageError if nothing was stored for want of time: so it would be next time."""
        within_s, reasons = self._plan.within_s, self._reasons[:1]
        is_over = reasons == [TIME_IS_UP] or (not reasons and self._not_begun + self._unmeasured)
        if within_s is None or not is_over or self._stored() > stored:
            return
        raise too_short(within_s, max(self._verdict_s, self._final_times.expected_s))

    async def _begun(self, entry: Entry, *, alone: bool) -> tuple[RunRow, Mapping[str, Any]]:
        """The entry's run, which begins now unless it is stored, and its configuration."""
        quotas.refuse_over_quota(entry.config)
        if entry.task.run in self._begun_runs:
            request = read_request(entry.config, has_parts=True)
            assert request.existing is not None
            audited = findings_of(request.existing.config)
            return request.existing, {**request.recorded, "audit": audited}
        task, failure = load_task(entry.config), ""
        recorded = {**entry.config, "opponents": {}, "audit": []}
        try:
            new = {**entry.config, "on_exists": "new"}
            request = read_request(new, has_parts=True, beside=self._plan.beside)
            task, recorded = request.task, {**request.recorded, "audit": []}
            task, facts = await self._unless_stopped(self._prepared(task, entry))
            recorded |= facts
        except UsageError as error:  # of this task: the settings of all have been checked
            if not alone and not isinstance(error, NoStart):  # neighbours may have what it lacks
                raise _Failed(str(error)) from error
            failure = str(error)
        run = self._store.create_run(
            name=entry.task.run, task=task, config=recorded, seed=recorded["seed"]
        )
        self._begun_runs.add(run.name)
        if failure:
            self._store.claim(run.id)
            self._store.release(run.id, "finished", failure)
            run = self._store.run(run.name)
        return run, recorded

    async def _prepared(self, task: Task, entry: Entry) -> tuple[Task, dict[str, Any]]:
        """The task with the compiler's output for it; its audit and the cost of its reference."""
        findings: Findings = []
        if self._plan.audit and isinstance(self._evaluator, PooledEvaluator):
            findings = await self._evaluator.audit(task)
        try:
            asked = task, entry.config, self._evaluator, EventFrontend(None)
            compiled, reference = await with_compiled(*asked), await reference_of(*asked)
            return compiled, {"audit": findings, "reference": reference}
        except EvaluatorUnavailable as error:
            raise _Failed(str(error)) from error

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`. Raises _GivenUp if a stop is asked first."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
            # Also if both are done: the next work would not notice the stop.
            if self._stop.is_set() and not (task.done() and task.exception()):
                raise _GivenUp
            return task.result()
        finally:
            stop.cancel()
            task.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    async def _search(self, run: RunRow, config: Mapping[str, Any]) -> None:
        engine = self._engine(run, config)
        keep(self._store, run, config)
        feed = Feed(components.build_trackers(config), run, self._say)
        pipeline = Pipeline(
            engine,
            Share(self._evaluator, self._sharing, lambda: self._slots.of_finals),
            quotas.termination(self._store, run, config),
            listeners=[feed],
            heard=feed.answered,
            say=_nothing,
            serial=config["deterministic"],
            drain_s=DRAIN_S,
            verify=False,
        )
        self._pipelines.add(pipeline)
        try:
            with feed:
                await pipeline.run()
        finally:
            self._pipelines.discard(pipeline)
            if engine.model is not None:
                await engine.model.close()

    def _sharing(self) -> int:
        """How many searches have something for the judge."""
        return sum(not pipeline.only_waits_for_models for pipeline in self._pipelines)

    def _engine(self, run: RunRow, config: Mapping[str, Any]) -> Search:
        return components.build_search(
            self._store, run, config, device_class=self._evaluator.device_class
        )


class _Failed(Exception):
    """Something has no verdict: the task's doing, the judge's, or that of neighbours."""


class _GivenUp(Exception):
    """A stop came first, or too little time is left: the next call goes on."""


def _nothing(line: str) -> None:
    """Drops a line: a hundred tasks would print too many."""
