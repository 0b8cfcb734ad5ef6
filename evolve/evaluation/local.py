"""`device=cpu`: the client of one worker process on this machine."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation, Stage, Status
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task
from evolve.evaluation.process import (
    CLOSED,
    CallFailed,
    CallOverdue,
    Deadlines,
    WorkerDied,
    WorkerProcess,
)

# The referee needs to find its libraries, compilers and caches; nothing else of the environment
# reaches it, so that no key or token of the user is within reach of what it starts.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CC", "CXX", "VIRTUAL_ENV")
PASSED_ON_PREFIXES = ("LD_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "TORCH", "TRITON_", "XDG_CACHE")

PACKAGE = Path(__file__).resolve().parents[1]


class LocalEvaluator:
    """Starts `python -m evolve.worker serve`, restarts it when it dies, and asks it in parallel.

    Use `LocalEvaluator.start(...)`; the constructor starts nothing, the first call does.

    Args:
        command: the worker's command line.
        environment: all of its environment.
        deadlines: how long to wait for it (None: the defaults).
        scratch: a folder that the worker needs; removed by `close`.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        deadlines: Deadlines | None = None,
        scratch: "tempfile.TemporaryDirectory[str] | None" = None,
    ) -> None:
        self._command = tuple(command)
        self._environment = environment
        self._deadlines = deadlines or Deadlines()
        self._scratch = scratch
        self._worker: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._retrying = asyncio.Lock()
        self._closed = False
        self._slots: int | None = None
        self.hello: dict[str, Any] = {}

    @classmethod
    async def start(
        cls,
        *,
        slots: int | None = None,
        python: str | None = None,
        sandbox_require: str = "none",
        sandbox_read: Sequence[str] = (),
        cache: Path | None = None,
    ) -> "LocalEvaluator":
        """A started worker.

        Args:
            slots: candidates under way at once (None: as many as the device suggests); compiling
                and checking overlap, timing does not.
            python: another interpreter for referee and runners, with torch in it.
            sandbox_require: the weakest sandbox tier that is acceptable.
            sandbox_read: further paths that candidates may read.
            cache: folder for compiled candidates.

        Raises:
            EvaluatorUnavailable: the worker does not come up.
            UsageError: the demanded sandbox tier is not to be had here.
        """
        command = [python or sys.executable, "-m", "evolve.worker", "serve"]
        command += ["--sandbox-require", sandbox_require]
        for path in sandbox_read:
            command += ["--read", path]
        if cache is not None:
            command += ["--cache", str(cache)]
        scratch = None if python is None else _only_our_package()
        package_path = str(PACKAGE.parent) if scratch is None else scratch.name
        evaluator = cls(command, worker_environment(package_path), scratch=scratch)
        evaluator._slots = slots
        try:
            await evaluator._running()
        except BaseException:
            await evaluator.close()
            raise
        return evaluator

    @property
    def slots(self) -> int:
        return self._slots or int(self.hello["slots"])

    @property
    def device_class(self) -> str:
        return str(self.hello["device_class"])

    @property
    def evaluator_version(self) -> str:
        return str(self.hello["evaluator_version"])

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict of the worker on one instance; INFRA where it twice came to none.

        Raises:
            UsageError: the task itself cannot be judged.
            EvaluatorUnavailable: the worker cannot be started, or the evaluator is closed.
        """
        params = {
            "task": _judged(request.task),
            "source": request.source,
            "fidelity": request.fidelity.value,
            "opponents": dict(request.opponents),
        }
        try:
            return Evaluation.from_json(await self._call("evaluate", params))
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

    async def audit(self, task: Task) -> list[dict[str, str]]:
        """Null candidates that pass the task's own check; an empty list is a sound task.

        This is where a task's own code runs first. It is not asked twice: what ends or holds up
        the worker here is the task.

        Raises:
            UsageError: the task file is bad, ends the process that loads it, or takes too long.
            EvaluatorUnavailable: the worker cannot be started, or fails by itself.
        """
        deadline_s = self._deadlines.audit_s
        worker = await self._running()
        try:
            findings: list[dict[str, str]] = await worker.ask(
                "audit", {"task": _judged(task)}, deadline_s
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

    async def noise(self, task: Task) -> dict[str, Any]:
        """Reference time, noise floor and cost of one evaluation on this device."""
        result: dict[str, Any] = await self._ask("noise", {"task": _judged(task)})
        return result

    async def doctor(self) -> dict[str, Any]:
        """Facts about device, compilers and sandbox."""
        result: dict[str, Any] = await self._ask("doctor", {})
        return result

    async def close(self) -> None:
        """End the worker and everything it started; calls under way raise EvaluatorUnavailable."""
        self._closed = True
        if self._worker is not None:
            await self._worker.close(self._deadlines.close_s)
        async with self._starting:  # a start under way sees that we are closed, and cleans up
            if self._scratch is not None:
                self._scratch.cleanup()

    async def _ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """A call whose failure has no other answer than an exception."""
        try:
            return await self._call(method, params)
        except CallFailed as failure:
            raise EvaluatorUnavailable(str(failure)) from failure

    async def _call(self, method: str, params: Mapping[str, Any]) -> Any:
        """One request, asked once more when the worker died under it.

        It is then alone with a fresh worker, new calls wait: a candidate that kills the referee
        again takes no neighbour with it, and one that was only a neighbour gets its verdict.
        """
        async with self._retrying:
            pass
        try:
            worker = await self._running()
            return await worker.ask(method, params, self._deadlines.call_s)
        except WorkerDied:
            async with self._retrying:
                worker = await self._running()
                return await worker.ask(method, params, self._deadlines.call_s)

    async def _running(self) -> WorkerProcess:
        """The worker, started and greeted."""
        async with self._starting:
            if self._worker is None or not self._worker.alive:
                self._worker = await self._start()
            return self._worker

    async def _start(self) -> WorkerProcess:
        if self._closed:
            raise EvaluatorUnavailable(CLOSED)
        try:
            self._worker = worker = await WorkerProcess.spawn(self._command, self._environment)
        except OSError as error:
            raise EvaluatorUnavailable(
                f"device.python={self._command[0]} cannot be started: {error.strerror}; "
                "give the path of a Python interpreter with torch installed"
            ) from error
        if self._closed:  # while it was being started
            await worker.close(0)
            raise EvaluatorUnavailable(CLOSED)
        try:
            self.hello = await worker.ask("hello", {}, self._deadlines.hello_s)
        except CallFailed as failure:
            worker.kill(str(failure))
            raise EvaluatorUnavailable(f"the worker cannot be used: {failure}") from failure
        except BaseException:
            worker.kill("the evaluation worker was not waited for")
            raise
        return worker


def worker_environment(package_path: str) -> dict[str, str]:
    """The environment of the worker: an allow-list, and the way to our package."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    environment["PYTHONPATH"] = package_path
    environment["PYTHONSAFEPATH"] = "1"  # a torch.py in the user's folder is not torch
    environment["OMP_WAIT_POLICY"] = "passive"  # spinning threads disturb the other side's time
    return environment


def _only_our_package() -> "tempfile.TemporaryDirectory[str]":
    """A folder that holds nothing but our package: none of our libraries shadow another's."""
    folder = tempfile.TemporaryDirectory(prefix="evolve-path-")
    (Path(folder.name) / PACKAGE.name).symlink_to(PACKAGE)
    return folder


def _judged(task: Task) -> dict[str, Any]:
    """What the judge needs of a task: seeds are the search's, and can be long."""
    return replace(task, seeds=()).to_json()
