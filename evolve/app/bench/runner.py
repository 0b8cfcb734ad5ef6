"""The runs of a bench: several under way before one judge, until all are done or time is up.

Each run is an ordinary one of the database. While one task is timed, others are checked, and the
references of the next are compiled. Begun tasks are finished first: a winner is measured beside
the searches of the next tasks, runs that an earlier call began come before new ones.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeGuard, TypeVar

from evolve.app import components
from evolve.app.bench.plan import Entry, Plan
from evolve.app.bench.schedule import FinalTimes, begun_first, finals_at_once, searches_at_once
from evolve.app.compiler_seeds import with_compiled
from evolve.app.estimate.reference import reference_of
from evolve.app.inputs import load_task
from evolve.app.session import is_done, keep
from evolve.app.team import quotas
from evolve.app.validation import read_request
from evolve.core.errors import EvaluatorUnavailable, EvolveError, UsageError
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
    is_measured,
    judge_again,
    play_finals,
    unjudged,
)
from evolve.search.execution.pipeline import Pipeline
from evolve.store import RunRow
from evolve.trackers import Feed

FIRST_S = 45.0  # to make a task ready and judge a program; a final, before one has ended
RESERVE_S = 20.0  # before the end: to cancel running work, end the judge and write the report
DRAIN_S = 5.0
PATIENCE_S = 8.0  # after a stop, for work that does not end by itself
MAX_WHY = 150  # characters
MAX_SKIPPED = 3  # tasks in a row under which the judge failed: it is not the tasks

T = TypeVar("T")


class Bench:
    """Searches every task of a plan that is not done.

    Args:
        plan: the runs to make.
        store: the database of all runs.
        evaluator: the judge of all runs.
        ends_at: when to have given up, on the clock of `time.monotonic`; None: when all is done.
        first_s: seconds to make a task ready and judge a program; the same for a final, before
            one has ended.
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
        first_s: float = FIRST_S,
        say: Callable[[str], None],
        interruptible: Callable[[Callable[[str], None]], AbstractContextManager[None]],
    ) -> None:
        self._plan, self._store, self._evaluator = plan, store, evaluator
        self._ends_at, self._say = ends_at, say
        self._interruptible = interruptible
        self._begun_runs = {run.name for run in store.runs()}
        self._waiting = begun_first(plan.entries, store)
        self._first_s = first_s
        self._final_times = FinalTimes(first_s)
        self._final_times.recall(plan.entries, store, plan.final)
        self._pipelines: set[Pipeline] = set()
        self._tasks: list[asyncio.Task[EvolveError | None]] = []
        self._finals: set[asyncio.Task[EvolveError | None]] = set()
        self._places = asyncio.Semaphore(finals_at_once(evaluator.slots))
        self._measuring = 0  # finals that have a place
        self._stop = asyncio.Event()
        self._request_stop: Callable[[str], None] = lambda reason: None
        self._ended = 0
        self._unmeasured = 0  # winners for which too little time was left
        self._alone: deque[Entry] = deque()
        self._skipped: list[str] = []
        self._skipped_in_a_row = 0

    async def run(self) -> str:
        """Search until all is done; why it ended before that, empty if it did not.

        Raises:
            EvolveError: the judge or the database cannot be used; interrupted runs can be resumed.
        """
        reasons: list[str] = []
        loop = asyncio.get_running_loop()

        def stop(reason: str) -> None:
            reasons.append(reason)
            self._stop.set()
            for pipeline in self._pipelines:
                pipeline.request_stop(reason)
            loop.call_later(PATIENCE_S, self._cancel)

        self._request_stop = stop
        alarm = None
        if self._ends_at is not None:
            alarm = loop.call_later(max(self._left_s(), 0.0), stop, "the time is up")
        try:
            with self._interruptible(stop):
                for _ in range(searches_at_once(self._evaluator.slots)):
                    self._start(self._search_all())
                await self._all_ended()
                self._start(self._repeat_alone())
                ends = await self._all_ended()
        finally:
            if alarm is not None:
                alarm.cancel()
        if errors := [end for end in ends if _is_failure(end, is_stopped=bool(reasons))]:
            raise errors[0]
        if not reasons and (self._waiting or self._alone):
            return "too little time is left for another task"
        if not reasons and self._unmeasured:
            winners = count_text(self._unmeasured, "winner")
            return f"too little time is left for the measurement of {winners}"
        if not reasons and self._skipped:
            return "the judge failed under some tasks"
        return reasons[0] if reasons else ""

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[EvolveError | None]:
        """Begin with something; a failure of it ends all, and is its result."""

        async def guarded() -> EvolveError | None:
            try:
                await work
            except EvolveError as error:
                self._request_stop(str(error))
                return error
            return None

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.append(task)
        return task

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _all_ended(self) -> list[EvolveError | BaseException | None]:
        """The results of all that was begun, and of what that began."""
        ends: list[EvolveError | BaseException | None] = []
        while len(ends) < len(self._tasks):
            ends = [*await asyncio.gather(*self._tasks, return_exceptions=True)]
        return ends

    async def _search_all(self) -> None:
        """Search one task after the other; their winners are measured beside the next searches."""
        while (entry := await self._next()) is not None:
            if (final := await self._searched(entry)) is not None:
                task = self._start(final)
                self._finals.add(task)
                task.add_done_callback(self._finals.discard)

    async def _repeat_alone(self) -> None:
        """Repeat one by one the tasks that failed while others ran."""
        while not self._stop.is_set() and self._alone and self._has_time(self._alone[0]):
            if (final := await self._searched(self._alone.popleft(), alone=True)) is not None:
                await final

    async def _next(self) -> Entry | None:
        """The first task there is time for; none while finals have all slots of the judge."""
        await asyncio.sleep(0)  # for a final that has been started to take its place
        while self._measuring >= self._evaluator.slots:
            await asyncio.wait(self._finals, return_when=asyncio.FIRST_COMPLETED)
        if self._stop.is_set():
            return None
        entry = next(filter(self._has_time, self._waiting), None)
        if entry is not None:
            self._waiting.remove(entry)
        return entry

    def _has_time(self, entry: Entry) -> bool:
        """Whether anything of a task can end in time: a new one has to be made ready first.

        Searches are begun although they may not end: the next call goes on with them, and until
        then the judge would have nothing to do.
        """
        is_begun = entry.task.run in self._begun_runs
        return self._left_s() > (0.0 if is_begun else self._first_s)

    def _left_s(self) -> float:
        """Seconds in which work may be under way."""
        return math.inf if self._ends_at is None else self._ends_at - RESERVE_S - time.monotonic()

    async def _searched(
        self, entry: Entry, *, alone: bool = False
    ) -> Coroutine[Any, Any, None] | None:
        """A task searched to the end of its budget: what is left to do then, None if nothing.

        A failure beside others is repeated alone.
        """
        start = time.monotonic()
        quotas.refuse_over_quota(entry.config)  # of all tasks to come, so it ends the bench
        try:
            run, config = await self._begun(entry, alone=alone)
            if not is_done(run, config):
                await self._search(run, config)
            if alone and not self._stop.is_set():
                await judge_again(self._engine(run, config), self._evaluator, self._stop)
        except _Failed as failure:
            self._put_off(entry, failure, alone=alone)
            return None
        except UsageError as error:
            self._say(f"{entry.task.label}: {error}")
            return None
        except _GivenUp:
            return None
        return self._measured(entry, run.name, config, start, alone=alone)

    async def _measured(
        self, entry: Entry, name: str, config: Mapping[str, Any], start: float, *, alone: bool
    ) -> None:
        """The winner of a search measured again, if there is time for it, and the task's line."""
        try:
            failed = not self._stop.is_set() and await self._final(name, config)
        except _TooLate:
            self._unmeasured += 1
            return
        except UsageError as error:
            self._say(f"{entry.task.label}: {error}")
            return
        self._skipped_in_a_row = 0
        if self._stop.is_set():
            return
        if not alone and (failed or unjudged(self._store, self._store.run(name).id)):
            self._put_off(entry, "by a fault of the judge something has no verdict", alone=False)
            return
        self._report(entry, name, time.monotonic() - start)

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
        self._skipped.append(entry.task.label)
        self._say(f"{entry.task.label}: left out for now, the judge failed: {why}")
        if self._skipped_in_a_row >= MAX_SKIPPED:
            raise EvaluatorUnavailable(str(why))

    def _report(self, entry: Entry, run: str, seconds: float) -> None:
        result = read_result(self._store, entry.task, self._store.run(run))
        self._ended += 1
        number = f"{self._ended} of {len(self._plan.entries)}"
        self._say(f"{number}: {task_line(result, self._plan.baselines)} | {seconds:.1f} s")

    async def _begun(self, entry: Entry, *, alone: bool) -> tuple[RunRow, Mapping[str, Any]]:
        """The entry's run, which begins now unless it is stored, and its configuration."""
        if entry.task.run in self._begun_runs:
            request = read_request(entry.config, has_parts=True)
            assert request.existing is not None
            audited = findings_of(request.existing.config)
            return request.existing, {**request.recorded, "audit": audited}
        task = load_task(entry.config)
        recorded, failure = {**entry.config, "opponents": {}, "audit": []}, ""
        try:
            new = {**entry.config, "on_exists": "new"}
            request = read_request(new, has_parts=True, beside=self._plan.beside)
            task, recorded = request.task, {**request.recorded, "audit": []}
        except UsageError as error:  # of this task: the settings of all have been checked
            failure = str(error)
        else:
            try:
                task, facts = await self._unless_stopped(self._prepared(task, entry))
                recorded |= facts
            except UsageError as error:
                if not alone:
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
            asked = task, entry.config, self._evaluator, _nothing, _silently
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
            Share(self._evaluator, self._sharing, lambda: self._measuring),
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

    async def _final(self, name: str, config: Mapping[str, Any]) -> bool:
        """Whether a final failed by a fault of the judge. Raises _TooLate if none may begin."""
        run = self._store.run(name)
        if self._plan.final is None or run.state != "finished":
            return False
        engine = self._engine(run, config)
        if is_measured(engine, self._plan.baselines):
            return False
        async with self._places:
            if self._left_s() < self._final_times.expected_s:
                raise _TooLate
            began = time.monotonic()
            self._measuring += 1
            try:
                failed = await play_finals(
                    engine, self._evaluator, self._plan.baselines, self._plan.final, self._stop
                )
            finally:
                self._measuring -= 1
        self._final_times.add(time.monotonic() - began)
        return failed

    def _engine(self, run: RunRow, config: Mapping[str, Any]) -> Search:
        return components.build_search(
            self._store, run, config, device_class=self._evaluator.device_class
        )


def _is_failure(end: object, *, is_stopped: bool) -> TypeGuard[BaseException]:
    """Whether a worker ended so; one that was given up by a stop is cancelled."""
    return isinstance(end, BaseException) and not (
        is_stopped and isinstance(end, asyncio.CancelledError)
    )


class _Failed(Exception):
    """A reference could not be looked at: the task's doing, the judge's, or that of neighbours."""


class _TooLate(Exception):
    """Too little time is left to measure a winner."""


class _GivenUp(Exception):
    """A stop came first; nothing is stored of the work in progress."""


def _silently(what: str) -> AbstractContextManager[None]:
    """Several tasks are prepared at once, and their lines would mix."""
    return nullcontext()


def _nothing(line: str) -> None:
    """Drops a line: a hundred tasks would print too many."""
