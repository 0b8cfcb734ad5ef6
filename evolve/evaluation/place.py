"""One worker and its place: started when it is first asked, and again after it has failed."""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.evaluation.process import CLOSED, CallFailed, Deadlines, WorkerProcess

WARM = 4  # tasks that a worker keeps warm


class Place:
    """Where one worker runs, which is one GPU, or the CPU.

    Args:
        name: what people call it.
        command: the worker's command line.
        environment: all of its environment.
        deadlines: how long to wait for it.
        slots: candidates under way at once (None: as many as the worker suggests).

    Attributes:
        hello: what the worker has said of itself; empty before its first start.
        running: calls that are here.
        reserved: whether a call is here, or waits, that wants to be alone.
        blamed: the instances under which workers have failed since the last answer.
        out: why nothing is sent here any more; empty while something is.
        tasks: revisions of the tasks that the worker was asked of last, and has warm.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        deadlines: Deadlines,
        slots: int | None,
    ) -> None:
        self.name = name
        self.hello: dict[str, Any] = {}
        self.running = 0
        self.reserved = False
        self.blamed: set[str] = set()
        self.out = ""
        self.tasks: deque[str] = deque(maxlen=WARM)
        self._command = tuple(command)
        self._environment = environment
        self._deadlines = deadlines
        self._slots = slots
        self._worker: WorkerProcess | None = None
        self._failed: WorkerProcess | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def slots(self) -> int:
        """Candidates under way at once; one until the worker is known."""
        return self._slots or int(self.hello.get("slots", 1))

    def phase_of(self, about: str) -> str:
        """The phase of the call about an instance, as far as the worker has said."""
        return self._worker.phases.get(about, "") if self._worker else ""

    async def ask(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str
    ) -> Any:
        """The result of one call about an instance.

        A worker that fails is ended, even if it only reported a failure: nothing is known of the
        state it and its device are.

        Raises:
            UsageError: the worker says that it cannot serve the request as it is.
            CallFailed: it ended, hung, or reports a failure of its own.
            EvaluatorUnavailable: it cannot be started.
        """
        worker = await self.up()
        try:
            result = await worker.ask(method, params, deadline_s, about)
        except CallFailed as failure:
            if worker is not self._failed:  # one failure, whatever the number of calls under it
                self._failed = worker
                self.blamed.add(about)
                worker.kill(str(failure))
            raise
        except UsageError:
            self.blamed.clear()
            raise
        self.blamed.clear()
        return result

    async def up(self) -> WorkerProcess:
        """The worker, started and greeted.

        Raises:
            EvaluatorUnavailable: it does not come up, or the place is closed.
            UsageError: it refuses its options.
        """
        async with self._starting:
            if self._worker is None or not self._worker.alive:
                self._worker = await self._start()
            return self._worker

    def kill(self, why: str) -> None:
        """End the worker at once; calls under way raise WorkerDied."""
        if self._worker is not None:
            self._worker.kill(why)

    async def close(self) -> None:
        """End the worker and everything it started; calls under way raise EvaluatorUnavailable."""
        self._closed = True
        if self._worker is not None:
            await self._worker.close(self._deadlines.close_s)
        async with self._starting:  # a start under way sees that we are closed, and cleans up
            return

    async def _start(self) -> WorkerProcess:
        if self._worker is not None:  # the next one needs the memory that it held
            await self._worker.close(0)
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
            with ExitStack() as on_failure:
                on_failure.callback(worker.kill, "the evaluation worker was not waited for")
                self.hello = await worker.ask("hello", {}, self._deadlines.hello_s)
                on_failure.pop_all()
        except CallFailed as failure:
            raise EvaluatorUnavailable(f"the worker cannot be used: {failure}") from failure
        return worker
