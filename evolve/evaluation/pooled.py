"""The judge as a search sees it, with workers on this machine or on others."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evolve.core.compiled import Compiled, read_compiled
from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Stage, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.reference import ReferenceCost
from evolve.core.task import Task
from evolve.worker.service.dispatch.faults import CallFailed, CallOverdue, WorkerDied
from evolve.worker.service.dispatch.place import Deadlines, Place
from evolve.worker.service.dispatch.pool import Pool


class PooledEvaluator:
    """Asks the workers of a pool in parallel.

    Args:
        pool: the workers' places.
        deadlines: how long to wait for one.
    """

    def __init__(self, pool: Pool, deadlines: Deadlines) -> None:
        self._pool = pool
        self._deadlines = deadlines

    @property
    def places(self) -> Sequence[Place]:
        """Where its workers are."""
        return self._pool.places

    @property
    def hello(self) -> Mapping[str, Any]:
        """A worker's facts about itself; empty before the first start."""
        return self._pool.hello

    @property
    def slots(self) -> int:
        """At least one: without a place in service, a call waits or says why."""
        return max(1, sum(place.slots for place in self._pool.in_service))

    @property
    def devices(self) -> int:
        """How many judge now."""
        return len(self._pool.in_service)

    @property
    def device_class(self) -> str:
        return str(self.hello["device_class"])

    @property
    def evaluator_version(self) -> str:
        return str(self.hello["evaluator_version"])

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict of a worker on one instance; INFRA where it twice came to none.

        Raises:
            UsageError: the task itself cannot be judged.
            EvaluatorUnavailable: no worker can be started, or the evaluator is closed.
        """
        params = {
            "task": _judged(request.task),
            "source": request.source,
            "fidelity": request.fidelity.value,
            "opponents": dict(request.opponents),
            "target_speedups": dict(request.target_speedups),
            "repeat": request.repeat,
        }
        try:
            verdict = await self._call("evaluate", params, request.instance, request.task)
            found = Evaluation.from_json(verdict)
            place = self._pool.judged_at(request.instance, request.task.revision)
            return replace(found, environment={**found.environment, "judge": place})
        except CallFailed as failure:
            return Evaluation(
                status=Status.INFRA,
                stage=Stage.NONE,
                fidelity=request.fidelity,
                task_revision=request.task.revision,
                device_class=self.device_class,
                evaluator_version=self.evaluator_version,
                feedback=str(failure),
            )

    def phase_of(self, instance: str) -> str:
        """The phase of the evaluation of an instance; empty if no worker has said."""
        return next(filter(None, (place.phase_of(instance) for place in self._pool.places)), "")

    async def audit(self, task: Task) -> list[dict[str, str]]:
        """Null candidates that pass the task's own check; an empty list is a sound task.

        This is where a task's own code runs first. It is not asked twice: where nothing else is
        asked meanwhile, what ends or holds up the worker is the task.

        Raises:
            UsageError: the task file is bad, ends the process that loads it, takes too long, or
                needs more memory than the device has.
            EvaluatorUnavailable: the worker cannot be started, or fails by itself.
        """
        deadline_s, params = self._deadlines.audit_s, {"task": _judged(task)}
        try:
            findings: list[dict[str, str]] = await self._pool.call(
                "audit", params, deadline_s, task.name, task.revision, once=True
            )
        except WorkerDied as death:
            raise UsageError(
                f"task {task.name}: its file ended the process that loads it ({death}); take out "
                "what exits, or what needs more memory than there is"
            ) from death
        except CallOverdue as overdue:
            raise UsageError(
                f"task {task.name}: loading and auditing it took more than {deadline_s:g} s; take "
                "out what waits or computes when the file is loaded, or take a smaller size "
                "(SIZES in the file, task_config.size=tiny)"
            ) from overdue
        except CallFailed as failure:
            raise EvaluatorUnavailable(str(failure)) from failure
        return findings

    async def conditions(self, task: Task) -> list[str]:
        """Sentences about a task's effects, mode and rules of equality, as they are judged."""
        found: list[str] = await self._ask("conditions", {"task": _judged(task)}, task)
        return found

    async def reference(self, task: Task) -> ReferenceCost:
        """The reference's time by operation and the device's limits, before any verdict."""
        found = await self._ask("reference", {"task": _judged(task)}, task)
        return ReferenceCost.from_json(found)

    async def noise(self, task: Task) -> dict[str, Any]:
        """Reference time, noise floor and cost of one evaluation on this device."""
        result: dict[str, Any] = await self._ask("noise", {"task": _judged(task)}, task)
        return result

    async def compiled(self, task: Task, variants: Sequence[str]) -> dict[str, Compiled | str]:
        """The reference as PyTorch's compiler writes it, by variant, or the reason for none."""
        params = {"task": _judged(task), "variants": list(variants)}
        return read_compiled(await self._ask("compiled", params, task))

    async def doctor(self) -> dict[str, Any]:
        """Facts about device, compilers and sandbox."""
        result: dict[str, Any] = await self._ask("doctor", {})
        return result

    def abandon(self) -> None:
        """End the workers at once, for evaluations that were given up; the next call starts them.

        A request that is no longer awaited would otherwise go on, and keep the device busy.
        """
        for place in self._pool.places:
            place.kill("it was given up for want of time")

    async def close(self) -> None:
        """End the workers and all they started; calls under way raise EvaluatorUnavailable."""
        await self._pool.close()

    async def _ask(self, method: str, params: Mapping[str, Any], task: Task | None = None) -> Any:
        """A call whose failure has no other answer than an exception."""
        try:
            return await self._call(method, params, method, task)
        except CallFailed as failure:
            raise EvaluatorUnavailable(str(failure)) from failure

    async def _call(
        self, method: str, params: Mapping[str, Any], about: str, task: Task | None
    ) -> Any:
        revision = task.revision if task else ""
        return await self._pool.call(method, params, self._deadlines.call_s, about, revision)


def say(line: str) -> None:
    """A line of the judge for people."""
    print(f"evolve: {line}", file=sys.stderr, flush=True)


def _judged(task: Task) -> dict[str, Any]:
    """The judge's part of a task: seeds are the search's, and can be long."""
    return replace(task, seeds=(), compiled=()).to_json()
