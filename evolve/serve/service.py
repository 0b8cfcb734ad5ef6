"""The service itself: takes submissions, has them judged, and keeps every answer."""

import asyncio
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from evolve.core.digest import canonical_json
from evolve.core.errors import EvaluatorUnavailable, StoreError, UsageError
from evolve.core.evaluation import Evaluation, Fidelity, Stage, Status
from evolve.core.model import ReplyStatus
from evolve.core.protocols import Evaluator
from evolve.core.task import Task
from evolve.evaluation import PooledEvaluator
from evolve.serve.counters import Counters
from evolve.serve.jobs import Fault, Job, Jobs, State
from evolve.serve.judge import Judge, Start
from evolve.serve.quota import DeviceQuota
from evolve.serve.scoring import known_of, parent_of, step_of
from evolve.serve.submissions import (
    AcceptedSubmission,
    PinMismatch,
    QueueFull,
    SameId,
    request_of,
    wrong_pin,
)
from evolve.trajectories.rewards import Reward
from evolve.trajectories.step import Known, Step

IDLE_S = 1.0  # how often a runner looks for jobs whose time has come
SWEEP_S = 1.0
STORE_S = 1.0  # how often it is tried again to read and write jobs on a disk that fails

Kept = TypeVar("Kept")

Findings = list[dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits of the service.

    Attributes:
        queue: jobs that may wait; more are refused for the time being.
        queue_s: seconds that a job may wait, and the most that a client may ask for.
        attempts: how often a job is tried whose verdict is our own fault.
        retry_s: seconds before it is tried again, times the attempts so far.
        keep_s: seconds for which a finished job is kept.
    """

    queue: int = 4096
    queue_s: float = 3600.0
    attempts: int = 3
    retry_s: float = 5.0
    keep_s: float = 7 * 86_400.0


class Service:
    """Jobs in, answers out.

    Args:
        jobs: where they are kept.
        start: starts an evaluator.
        rewards: those that may be asked for, by name.
        settings: its limits.
        say: takes lines for the operator of the server.
        quota: of device time; None: no limit.

    Attributes:
        counters: of its work so far.
        judge: does it.
        trouble: why jobs cannot be read or written at present; empty while they can.
    """

    def __init__(
        self,
        jobs: Jobs,
        start: Start,
        rewards: Mapping[str, Reward],
        settings: Settings,
        say: Callable[[str], None],
        quota: DeviceQuota | None = None,
    ) -> None:
        self.jobs = jobs
        self.quota = quota
        self.rewards = rewards
        self.settings = settings
        self.counters = Counters()
        self.judge = Judge(start, say)
        self.trouble = ""
        self._say = say
        self._lease = uuid.uuid4().hex
        self._arrived = asyncio.Event()
        self._watching: dict[str, set[asyncio.Event]] = {}
        self._auditing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._broken: dict[str, str] = {}  # tasks that could not be audited, and why

    async def start(self) -> None:
        """Start the judge, and queue again the jobs that an earlier server left under way.

        Raises:
            EvaluatorUnavailable: the judge does not come up.
            UsageError: the device or the sandbox asked for is not to be had.
        """
        if self.quota is not None:
            self.quota.start()
        await self.judge.up()
        if left := self.jobs.recover(self.settings.attempts):
            self._say(f"{left} jobs that an earlier server had under way are queued again")

    async def run(self) -> None:
        """Judge jobs until cancelled; those under way then are the next server's."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._sweep())
                if self.quota is not None:
                    group.create_task(self.quota.watch(self._say))
                for _ in range(self.judge.known.slots):
                    group.create_task(self._run())
        except asyncio.CancelledError:
            with suppress(StoreError):  # the next server finds them as after a crash
                self.jobs.release(self._lease)
            raise

    async def close(self) -> None:
        """End the judge, and let go of the file."""
        await self.judge.close()
        self.jobs.close()
        if self.quota is not None:
            self.quota.close()

    @property
    def sandbox(self) -> str:
        """The tier around candidates; empty if the judge does not say."""
        judge = self.judge.known
        return str(judge.hello.get("sandbox", "")) if isinstance(judge, PooledEvaluator) else ""

    def submit(self, submissions: Sequence[AcceptedSubmission]) -> list[Job]:
        """Take submissions, all or none; one that is known by its id already is not repeated.

        Raises:
            QueueFull: there is no room for them.
            UsageError: there never will be.
            PinMismatch: they are for another judge, or name rewards that are not here.
            SameId: an id stands for another submission.
            OverQuota: the server has no device time left.
        """
        if self.quota is not None:
            self.quota.require()
        evaluator = self.judge.known
        ids = [submission.id for submission in submissions]
        if len({*ids}) < len(ids):
            raise SameId("two submissions of a batch have the same id; give each its own")
        held = self.jobs.get(ids)
        for submission in submissions:
            if submission.id in held and held[submission.id].digest != submission.digest:
                raise SameId(f"id {submission.id!r} stands for another submission; take a new one")
        new = [submission for submission in submissions if submission.id not in held]
        for submission in new:
            self._check(submission, evaluator)
        self._require_room(len(new))
        self.jobs.add(
            [submission.job(evaluator, self.settings.queue_s) for submission in new],
            {submission.task.revision: submission.task.to_json() for submission in new},
        )
        self.counters.submitted += len(new)
        for job in self.jobs.get([submission.id for submission in new]).values():
            self._answer_at_once(job, None)
        self._arrived.set()
        found = self.jobs.get(ids)
        return [found[id_] for id_ in ids]

    async def wait(self, ids: Sequence[str], wait_s: float) -> dict[str, Job]:
        """The jobs of these ids, as soon as one of them is over, or after `wait_s` seconds.

        At once if there is no job of one of them.
        """
        event = asyncio.Event()
        for id_ in ids:
            self._watching.setdefault(id_, set()).add(event)
        try:
            if wait_s > 0 and self.jobs.are_open(ids):
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await event.wait()
        finally:
            for id_ in {*ids}:
                self._watching[id_].discard(event)
                if not self._watching[id_]:
                    del self._watching[id_]
        return self.jobs.get(ids)

    def renew(self, job: Job) -> Job:
        """Judge a finished job again, without using known verdicts; under its id as if it were new.

        Raises:
            QueueFull: there is no room for it.
        """
        self._require_room(1)
        self.jobs.renew(job, self.settings.queue_s)
        self.counters.retried += 1
        self._arrived.set()
        return self.jobs.get([job.id])[job.id]

    def findings(self, revision: str) -> Findings | None:
        """Null candidates that pass a task's check; None if it was not audited."""
        found: Findings | None = self.jobs.audit(revision, _name(self.judge.known))
        return found

    def _check(self, submission: AcceptedSubmission, evaluator: Evaluator) -> None:
        if missing := [name for name in submission.rewards if name not in self.rewards]:
            there = ", ".join(self.rewards)
            raise PinMismatch(f"rewards: {', '.join(missing)} is not here; there are {there}")
        if wrong := wrong_pin(submission.pins, evaluator):
            raise PinMismatch(wrong)
        for name in submission.rewards:
            needed = self.rewards[name].baseline
            if needed and submission.baseline != needed:
                raise UsageError(
                    f"rewards: {name} reads the speedup over {needed}, and baseline is "
                    f"{submission.baseline}; send baseline={needed}, which is measured beside eager"
                )

    def _require_room(self, count: int) -> None:
        if count > self.settings.queue:
            raise UsageError(
                f"{count} jobs at once never fit into a queue of {self.settings.queue}; send fewer"
            )
        over = self.jobs.count(State.QUEUED) + count - self.settings.queue
        if count and over > 0:
            self.counters.refused += count
            wait_s = over * self.counters.judged_s / self.judge.known.slots
            raise QueueFull(max(1, min(60, round(wait_s))))

    def _answer_at_once(self, job: Job, lease: str | None) -> bool:
        """End a job that needs no judge: there is no program, or its verdict is known."""
        if job.request["reading"] != ReplyStatus.PROGRAM:
            self._end(job, lease, _unreadable(job, self.judge.known))
        elif not job.request["fresh"] and (known := self.jobs.known(job.key)):
            self._end(job, lease, Evaluation.from_json(known), cached=True)
        else:
            return False
        return True

    async def _run(self) -> None:
        """Judge one job after the other."""
        while True:
            evaluator = await self.judge.ready()
            if self.quota is not None and self.quota.refusal:
                await asyncio.sleep(IDLE_S)
                continue
            self._arrived.clear()
            job = await self._kept(partial(self.jobs.claim, self._lease))
            if job is None:
                with suppress(TimeoutError):  # `wait_for` of 3.11 loses cancellations
                    async with asyncio.timeout(IDLE_S):
                        await self._arrived.wait()
            elif await self._kept(partial(self._answer_at_once, job, self._lease)):
                await asyncio.sleep(0)  # requests have their turn between many of these
            else:
                ending = await self._judge(job, evaluator)
                await self._kept(ending)

    async def _kept(self, work: Callable[[], Kept]) -> Kept:
        """The outcome of work on the jobs, which waits for a disk that fails."""
        while True:
            try:
                done = work()
            except StoreError as error:
                self.trouble = str(error)
                self._say(f"{error}; trying again in {STORE_S:g} s")
                await asyncio.sleep(STORE_S)
            else:
                self.trouble = ""
                return done

    async def _judge(self, job: Job, evaluator: Evaluator) -> Callable[[], None]:
        """Have a job judged; returns the rest that must be written."""
        if wrong := wrong_pin(job.request["pins"], evaluator):
            return partial(self._fail, job, Fault.PIN, wrong)
        task = await self._kept(partial(self._task, job))
        began = time.monotonic()
        try:
            await self._audit(task, evaluator)
            evaluation = await evaluator.evaluate(request_of(task, job))
            canonical_json(evaluation.to_json())  # a verdict that holds a NaN cannot be kept
        except UsageError as error:
            return partial(self._fail, job, Fault.TASK, str(error))
        except EvaluatorUnavailable as error:
            await self.judge.give_up(evaluator, str(error))
            return partial(self._retry, job, str(error))
        except (KeyError, TypeError, ValueError) as error:
            return partial(self._retry, job, f"the judge's answer is no verdict: {error!r}")
        self.counters.judged(time.monotonic() - began)
        if self.quota is not None:
            self.quota.add(evaluation.device_time_s)
        if evaluation.is_worth_another_try:
            return partial(self._retry, job, evaluation.feedback)
        if evaluation.status is Status.INFRA:
            return partial(self._fail, job, Fault.INFRA, evaluation.feedback)
        return partial(self._end, job, self._lease, evaluation)

    def _task(self, job: Job) -> Task:
        return Task.from_json(self.jobs.task(job.revision))

    async def _audit(self, task: Task, evaluator: Evaluator) -> None:
        """Audit a task that this judge has not audited yet.

        One that cannot be audited is not tried again before the next start: that can take minutes
        each time.
        """
        if not isinstance(evaluator, PooledEvaluator):
            return
        name, revision = _name(evaluator), task.revision
        async with self._auditing[revision]:
            if revision in self._broken:
                raise UsageError(self._broken[revision])
            if await self._kept(partial(self.jobs.audit, revision, name)) is None:
                try:
                    findings = await evaluator.audit(task)
                except UsageError as error:
                    self._broken[revision] = str(error)
                    raise
                await self._kept(partial(self.jobs.keep_audit, revision, name, findings))

    def _retry(self, job: Job, why: str) -> None:
        """Queue a job again, or say that it is our fault if that has been tried enough."""
        tried = job.attempts + 1  # the one that has just failed
        if tried >= self.settings.attempts:
            self._fail(job, Fault.INFRA, why)
        else:
            self.counters.retried += 1
            self.jobs.give_back(job, self._lease, self.settings.retry_s * tried)

    def _fail(self, job: Job, fault: Fault, message: str) -> None:
        if self.jobs.finish(job, self._lease, fault=fault, message=message):
            self.counters.faults[fault] += 1
            self._tell(job.id)

    def _end(
        self, job: Job, lease: str | None, evaluation: Evaluation, *, cached: bool = False
    ) -> None:
        rewards = self._score(job, evaluation)
        verdict = evaluation.to_json()
        if self.jobs.finish(job, lease, verdict=verdict, rewards=rewards, cached=cached):
            self.counters.verdicts[evaluation.status] += 1
            self.counters.cached += cached
            self._tell(job.id)

    def _score(self, job: Job, evaluation: Evaluation) -> dict[str, float | None]:
        """The rewards asked for; unknown if being correct means little."""
        asked = job.request["rewards"]
        if not asked or self.findings(job.revision):
            return dict.fromkeys(asked)
        readable = job.request["reading"] == ReplyStatus.PROGRAM
        judged = evaluation if readable else None
        step = step_of(self._task(job), job.request, judged, self._parent(job))
        return {name: self._worth(name, step) for name in asked}

    def _worth(self, name: str, step: Step) -> float | None:
        """One reward; one that fails is unknown, and the rest goes on."""
        try:
            return self.rewards[name].score(step)
        except UsageError as error:
            self._say(str(error))
            return None

    def _parent(self, job: Job) -> Known | None:
        """The parent of the candidate, if the client names one that has a verdict."""
        name = job.request["parent"]
        parent = self.jobs.get([name]).get(name) if name else None
        if parent is None or parent.verdict is None or parent.revision != job.revision:
            return parent_of(job.request)
        return known_of(parent.request, parent.verdict)

    def _tell(self, id_: str) -> None:
        for event in self._watching.get(id_, ()):
            event.set()

    async def _sweep(self) -> None:
        while True:
            for id_ in await self._kept(self.jobs.expire):
                self.counters.faults[Fault.EXPIRED] += 1
                self._tell(id_)
            await self._kept(partial(self.jobs.forget, self.settings.keep_s))
            await asyncio.sleep(SWEEP_S)


def _name(evaluator: Evaluator) -> str:
    """The auditor of a task."""
    return f"{evaluator.device_class} {evaluator.evaluator_version}"


def _unreadable(job: Job, evaluator: Evaluator) -> Evaluation:
    """The verdict on a reply that holds no program."""
    return Evaluation(
        status=Status.INVALID_INTERFACE,
        stage=Stage.NONE,
        fidelity=Fidelity(job.request["fidelity"]),
        task_revision=job.revision,
        device_class=evaluator.device_class,
        evaluator_version=evaluator.evaluator_version,
        feedback=f"the reply holds no program: {job.request['note']}",
    )
