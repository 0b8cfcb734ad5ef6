"""The way of a new run: task, judge, audit, row in the database, search."""

import asyncio
import math
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from evolve.app import components
from evolve.app.attach import attach
from evolve.app.budget import budget_notes, stagnation_notes
from evolve.app.compiler_seeds import variants, with_compiled
from evolve.app.database import location_of
from evolve.app.device import kind_of, start_evaluator
from evolve.app.estimate.dry_run import audit_lines
from evolve.app.estimate.reference import reference_of
from evolve.app.frontend import Frontend
from evolve.app.inputs import known_of, take_over
from evolve.app.models import key_notes
from evolve.app.recall import recalled_lines, with_recalled
from evolve.app.session import search
from evolve.app.validation import read_request
from evolve.core.devices import device_kind
from evolve.core.errors import UsageError
from evolve.core.protocols import Evaluator, Progress
from evolve.core.run_store import RunStore
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator, WorkerDied
from evolve.report.audit import Findings, findings_of
from evolve.report.text import count_text
from evolve.search.execution.deadline import LATE_S
from evolve.search.execution.firing import too_late
from evolve.search.execution.pipeline import Outcome
from evolve.search.steering import repeat, resumed_limits
from evolve.search.termination import format_duration
from evolve.store import RunRow, Store, Ticket

MAX_STEM = 40  # characters of a task's name in that of its run


async def launch(
    config: Mapping[str, Any], frontend: Frontend, began: float | None = None
) -> Outcome:
    """Search as `config` says.

    Args:
        config: of the run.
        frontend: shows progress.
        began: when the command began, on the clock of `time.monotonic` (None: now).

    Returns:
        How it ended: finished, or stopped and resumable.

    Raises:
        UsageError: the words cannot be, the task is bad, or the wall time was over before a new run
            could begin.
    """
    began = time.monotonic() if began is None else began
    request = read_request(config)
    existing, task, config = request.existing, request.task, dict(request.recorded)
    steps: Sequence[Ticket] = ()
    notes = [*key_notes(config, is_new=not existing)]
    notes += [] if existing else budget_notes(config, kind_of(config))
    for note in notes:
        frontend.say(note)
    judges: list[Evaluator] = []
    try:
        if existing:
            with frontend.doing("starting the judge", plain=False):
                compiles = needs_compiled(existing, config)
                judges.append(await start_evaluator(config, compiles=compiles))
            with Store.open(location_of(config)) as store:
                existing = await prepare_created(store, existing, config, judges[0], frontend)
            config["opening"] = existing.config.get("opening", False)
            config["audit"] = findings_of(existing.config)
            config["termination"] = resumed_limits(existing.config, config["termination"])
            components.build_termination(config)  # where nothing ends a weak task's run, say so now
        else:
            async with _in_time(config, began, judges):
                with frontend.doing("starting the judge", plain=False):
                    judge = await start_evaluator(config, compiles=bool(variants(task, config)))
                judges.append(judge)
                config["opening"] = _opens(config)
                config["audit"], task = await _prepared(config, judges[0], task, frontend)
                config["reference"] = await reference_of(task, config, judge, frontend)
            task, steps = take_over(config, task, judges[0])
            config = with_recalled(config, task)
        with Store.open(location_of(config), create=True) as store:
            for notice in store.notices:
                frontend.say(notice)
            run = existing or _create(store, config, task, steps)
            if not existing and config["device"]["kind"] == "replay":
                repeat(store, run.id, store.run(config["device"]["run"]).id)
            frontend.say(f"run {run.name} in {store.location}{taken_over_text(len(steps))}")
            for line in recalled_lines({} if existing else config):
                frontend.say(line)
            return await search(store, run, config, judges[0], frontend, began=began)
    finally:
        for judge in judges:
            await judge.close()


@asynccontextmanager
async def _in_time(
    config: Mapping[str, Any], began: float, judges: Sequence[Evaluator]
) -> AsyncIterator[None]:
    """Preparations before a run begins, as far as a limit on wall time leaves time.

    Raises:
        UsageError: it does not.
    """
    left_s = components.build_termination({**config, "audit": []}).wall_time_left_s(Progress())
    loop = asyncio.get_running_loop()
    ends = began + left_s + LATE_S - time.monotonic() + loop.time()
    try:
        async with asyncio.timeout_at(ends if ends < math.inf else None) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        for judge in judges:
            if isinstance(judge, PooledEvaluator):
                judge.abandon()  # it is at the task, and would have to be waited for
        raise UsageError(
            f"termination.wall_time={config['termination']['wall_time']} was over before the judge "
            "had started and the task was audited; nothing is stored; give more than the "
            f"{format_duration(time.monotonic() - began)} that this has taken"
        ) from None


def _opens(config: Mapping[str, Any]) -> bool:
    """Whether a new run verifies its first program at once: on a GPU, and if the replayed run did.

    On a CPU, where nothing is timed beside anything else, that would cost others their turns.
    """
    if config["device"]["kind"] == "replay":
        with Store.open(location_of(config), read_only=True) as store:
            return bool(store.run(config["device"]["run"]).config.get("opening"))
    return device_kind(kind_of(config)).is_gpu


async def _prepared(
    config: Mapping[str, Any],
    evaluator: Evaluator,
    task: Task,
    frontend: Frontend,
    *,
    needs_start: bool = True,
) -> tuple[Findings, Task]:
    """The findings of a task's audit, and the task with the compiler's output for it.

    Both at the same time, as a compiler takes seconds to be imported. If the judge ends under them
    it may have been either: only a task that does it alone is to blame.

    Raises:
        UsageError: the task is bad, or weak and nothing would end the run.
    """
    ask = partial(with_compiled, task, config, evaluator, frontend, needs_start=needs_start)
    compiling = asyncio.create_task(ask())
    try:
        try:
            found = await audit(config, evaluator, task, frontend)
        except UsageError as error:
            if not isinstance(error.__cause__, WorkerDied):
                raise
            await _end(compiling)
            found = await audit(config, evaluator, task, frontend)
            compiling = asyncio.create_task(ask())
        components.build_termination({**config, "audit": found})  # before seconds of compiling
        return found, await compiling
    finally:
        await _end(compiling)


def needs_compiled(run: RunRow, config: Mapping[str, Any]) -> bool:
    """Whether `prepare_created` has the run's task compiled."""
    return run.config.get("audit") is None and bool(variants(run.task, config))


async def prepare_created(
    store: Store, run: RunRow, config: Mapping[str, Any], evaluator: Evaluator, frontend: Frontend
) -> RunRow:
    """Audit, compile and measure the task of a run that `--create` stored without a judge.

    Without a program to start from it goes on: prompts that are answered by hand bring the first.

    Returns:
        The run as it is stored now; as it was if it has been prepared before.
    """
    if run.config.get("audit") is not None or not isinstance(evaluator, PooledEvaluator):
        return run
    found, task = await _prepared(config, evaluator, run.task, frontend, needs_start=False)
    cost = await reference_of(task, config, evaluator, frontend)
    with attach(store, run):
        store.record_compiled(run.id, task.compiled)
        if cost is not None:
            store.record_reference(run.id, cost)
        store.record_audit(run.id, found)  # last: a run that has it is not prepared again
    return store.run(run.name)


async def _end(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Created:
    """A stored run, its database, and how many verdicts of another run it begins with.

    `notes` are lines on settings that its limits leave without an effect.
    """

    run: RunRow
    location: str
    verdicts: int
    notes: Sequence[str] = ()


def create(config: Mapping[str, Any]) -> Created:
    """Store the run that `config` describes and judge nothing: `evolve batch` goes on from there.

    Its task is not audited yet, nor its reference compiled; the first batch does that too, as far
    as the run that it begins with has not.
    """
    request = read_request(config, by_hand=True)
    config, task = request.recorded, request.task
    steps: Sequence[Ticket] = ()
    if request.existing is None:
        config, task = known_of(config, task)
        task, steps = take_over(config, task)
        config = with_recalled(config, task)
    with Store.open(location_of(config), create=True) as store:
        run = request.existing or _create(store, config, task, steps)
        if steps:
            with attach(store, run) as taken:
                taken.open_tickets()  # tells them, so that the first prompt knows
        parts = components.build_search(store, run, config).parts
        notes = [*too_late(parts, components.build_termination(config)), *stagnation_notes(config)]
        return Created(run, store.location, len(steps), [] if request.existing else notes)


async def audit(
    config: Mapping[str, Any], evaluator: Evaluator, task: Task, frontend: Frontend
) -> Findings:
    """Null candidates that pass the task's check; reported, and kept with the run.

    Replay has no device for this: the findings at the start of the recorded run apply.
    """
    findings: Findings
    if isinstance(evaluator, PooledEvaluator):
        with frontend.doing(f"auditing the task {task.name}"):
            findings = await evaluator.audit(task)
            conditions = await evaluator.conditions(task)
        for line in conditions:
            frontend.say(f"judged      {line}")
    else:
        with Store.open(location_of(config), read_only=True) as store:
            findings = findings_of(store.run(config["device"]["run"]).config)
    if findings:
        for line in audit_lines(task, findings):
            frontend.say(line)
    return findings


def taken_over_text(steps: int) -> str:
    """The line about the steps of another run that a new one begins with."""
    return f", with {count_text(steps, 'verdict')} of another run" if steps else ""


def _create(
    store: RunStore, config: Mapping[str, Any], task: Task, steps: Sequence[Ticket] = ()
) -> RunRow:
    name, stem = config["name"], re.sub(r"[^\w.+-]", "-", task.name)[:MAX_STEM]
    return store.create_run(
        name=_free_name(store, name or stem, numbered=name is None),
        task=task,
        config=config,
        seed=config["seed"],
        steps=steps,
    )


def _free_name(store: RunStore, stem: str, *, numbered: bool) -> str:
    """`stem`, or `stem-2`, ... if that is taken; `stem-1` if it is no chosen name."""
    taken = {run.name for run in store.runs()}
    names = ([] if numbered else [stem]) + [f"{stem}-{n}" for n in range(1, len(taken) + 2)]
    return next(name for name in names if name not in taken)
