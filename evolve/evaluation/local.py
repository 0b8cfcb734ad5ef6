"""The client of one worker process on this machine."""

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.core.evaluation import Evaluation
from evolve.core.protocols import EvaluationRequest
from evolve.core.task import Task

PROTOCOL = 1
MAX_LINE = 256 << 20  # bytes; raw samples of a long evaluation are the largest thing on the wire
RESTARTS = 2  # of a worker that died under a request before the request is given up
CLOSE_S = 10.0

# The referee needs to find its libraries, compilers and caches; nothing else of the environment
# reaches it, so that no key or token of the user is within reach of what it starts.
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "CC", "CXX", "VIRTUAL_ENV")
PASSED_ON_PREFIXES = ("LD_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "TORCH", "TRITON_", "XDG_CACHE")


class LocalEvaluator:
    """Starts `python -m evolve.worker serve`, restarts it when it dies, and asks it in parallel.

    Use `LocalEvaluator.start(...)`; the constructor starts nothing.
    """

    def __init__(self, command: Sequence[str], environment: dict[str, str]) -> None:
        self._command = tuple(command)
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()
        self._stderr: deque[str] = deque(maxlen=20)
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
        evaluator = cls(command, worker_environment(own_interpreter=python is None))
        try:
            evaluator.hello = await evaluator.call("hello", {})
        except BaseException:
            await evaluator.close()
            raise
        evaluator._slots = slots
        return evaluator

    @property
    def slots(self) -> int:
        return self._slots or int(self.hello["slots"])

    @property
    def device_class(self) -> str:
        return str(self.hello["device"])

    @property
    def evaluator_version(self) -> str:
        return str(self.hello["evaluator_version"])

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The verdict of the worker on one instance."""
        return Evaluation.from_json(
            await self.call(
                "evaluate",
                {
                    "task": request.task.to_json(),
                    "source": request.source,
                    "fidelity": request.fidelity.value,
                    "opponents": dict(request.opponents),
                },
            )
        )

    async def audit(self, task: Task) -> list[dict[str, str]]:
        """Null candidates that pass the task's own check; an empty list is a sound task."""
        findings: list[dict[str, str]] = await self.call("audit", {"task": task.to_json()})
        return findings

    async def noise(self, task: Task) -> dict[str, Any]:
        """Reference time, noise floor and cost of one evaluation on this device."""
        result: dict[str, Any] = await self.call("noise", {"task": task.to_json()})
        return result

    async def doctor(self) -> dict[str, Any]:
        """Facts about device, compilers and sandbox."""
        result: dict[str, Any] = await self.call("doctor", {})
        return result

    async def call(self, method: str, params: dict[str, Any]) -> Any:
        """One request; a worker that dies under it is restarted and asked again.

        Raises:
            UsageError: the worker says that the request itself cannot be served (a bad task).
            EvaluatorUnavailable: the worker cannot be started, or died again and again.
        """
        for _ in range(1 + RESTARTS):
            process = await self._started()
            number = next(self._numbers)
            future = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
            line = json.dumps({"v": PROTOCOL, "id": number, "method": method, "params": params})
            try:
                process.stdin.write(line.encode() + b"\n")  # type: ignore[union-attr]
                await process.stdin.drain()  # type: ignore[union-attr]
                return await future
            except (ConnectionError, _WorkerDiedError):
                continue
            finally:
                self._waiting.pop(number, None)
        raise EvaluatorUnavailable(
            f"the evaluation worker died {1 + RESTARTS} times under '{method}'; "
            f"its last words: {self._last_words()}"
        )

    async def close(self) -> None:
        """End the worker and everything it started."""
        self._closed = True
        process, self._process = self._process, None
        if process is None:
            return
        process.stdin.close()  # type: ignore[union-attr]
        try:
            await asyncio.wait_for(process.wait(), CLOSE_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    async def _started(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._closed:
                raise EvaluatorUnavailable("the evaluator is closed")
            if self._process is None or self._process.returncode is not None:
                self._process = await self._spawn()
            return self._process

    async def _spawn(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                limit=MAX_LINE,
                start_new_session=True,  # Ctrl-C is ours to handle; the worker ends with its stdin
            )
        except OSError as error:
            raise EvaluatorUnavailable(
                f"device.python={self._command[0]} cannot be started: {error.strerror}; "
                "give the path of a Python interpreter with torch installed"
            ) from error
        self._readers = [
            asyncio.create_task(self._read_replies(process)),
            asyncio.create_task(self._read_stderr(process)),
        ]
        return process

    async def _read_replies(self, process: asyncio.subprocess.Process) -> None:
        async for line in process.stdout:  # type: ignore[union-attr]
            reply = json.loads(line)
            if reply["id"] is None:  # it refuses to start, or did not understand us at all
                self._fail_all(_error(reply["error"]))
                continue
            future = self._waiting.get(reply["id"])
            if future is None or future.done():
                continue  # its caller was cancelled
            if "error" in reply:
                future.set_exception(_error(reply["error"]))
            else:
                future.set_result(reply["result"])
        await process.wait()
        self._fail_all(_WorkerDiedError())

    def _fail_all(self, error: Exception) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _read_stderr(self, process: asyncio.subprocess.Process) -> None:
        async for line in process.stderr:  # type: ignore[union-attr]
            self._stderr.append(line.decode(errors="replace").rstrip())

    def _last_words(self) -> str:
        return " | ".join(self._stderr) or "none"


class _WorkerDiedError(Exception):
    """The worker ended before it had answered."""


def _error(error: dict[str, str]) -> Exception:
    if error["kind"] == "usage":
        return UsageError(error["message"])
    return EvaluatorUnavailable(error["message"])


def worker_environment(*, own_interpreter: bool) -> dict[str, str]:
    """The environment of the worker: an allow-list, and the way to our package.

    Another interpreter gets a folder that holds nothing but our package, so that none of our
    libraries shadow its own.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    package = Path(__file__).resolve().parents[1]
    if own_interpreter:
        environment["PYTHONPATH"] = str(package.parent)
    else:
        only_ours = Path(tempfile.mkdtemp(prefix="evolve-path-"))
        (only_ours / package.name).symlink_to(package)
        environment["PYTHONPATH"] = str(only_ours)
    environment["PYTHONSAFEPATH"] = "1"  # a torch.py in the user's folder is not torch
    environment["OMP_WAIT_POLICY"] = "passive"  # spinning threads disturb the other side's time
    return environment
