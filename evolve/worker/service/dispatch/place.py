"""One worker and its place: started when it is first asked, and again after it has failed."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from evolve.core.errors import EvaluatorUnavailable, UsageError
from evolve.worker.service.dispatch.faults import CLOSED, CallFailed, PlaceLost

WARM = 4  # tasks that a worker keeps warm


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """How long to wait for a worker before it is killed, in seconds.

    `hello_s` covers the start with its imports. `call_s` is generous: evaluations of every search
    on the host queue for one timing lock. `audit_s` covers the task file's own code too, which may
    wait for ever. `close_s` is for an end on its own terms.
    """

    hello_s: float = 120.0
    audit_s: float = 120.0
    call_s: float = 1800.0
    close_s: float = 10.0


class Worker(Protocol):
    """A started worker, wherever it runs: `WorkerProcess` is one of this machine."""

    @property
    def alive(self) -> bool:
        """Whether it is worth asking."""
        ...

    @property
    def phases(self) -> Mapping[str, str]:
        """The last reported phase of each call under way, by its subject."""
        ...

    async def ask(
        self, method: str, params: Mapping[str, Any], deadline_s: float, about: str = ""
    ) -> Any:
        """The result of one call. A worker that misses the deadline is killed.

        Raises:
            UsageError: the worker says that it cannot serve the request as it is.
            CallFailed: it ended, was lost, missed the deadline, or reports a failure of its own.
            EvaluatorUnavailable: it was closed meanwhile.
        """
        ...

    def kill(self, why: str) -> None:
        """End it at once with all that it started; every call under way raises WorkerDied."""
        ...

    async def close(self, close_s: float) -> None:
        """End it on its own terms, after `close_s` by force.

        Every call under way raises EvaluatorUnavailable.
        """
        ...


class Place:
    """Where one worker runs, which is one GPU, or the CPU.

    Args:
        name: what people call it.
        start: starts a worker there, or raises EvaluatorUnavailable or PlaceLost.
        deadlines: how long to wait for it.
        slots: candidates under way at once (None: as many as the worker suggests).

    Attributes:
        hello: what the worker has said of itself; empty before its first start.
        running: calls that are here.
        reserved: whether a call is here, or waits, that wants to be alone.
        blamed: why workers have failed since the last answer, by the instance under which.
        out: why nothing is sent here any more; empty while something is.
        tasks: revisions of the tasks that the worker was asked of last, and has warm.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Awaitable[Worker]],
        deadlines: Deadlines,
        slots: int | None = None,
    ) -> None:
        self.name = name
        self.hello: dict[str, Any] = {}
        self.running = 0
        self.reserved = False
        self.blamed: dict[str, str] = {}
        self.out = ""
        self.tasks: deque[str] = deque(maxlen=WARM)
        self._start_worker = start
        self._deadlines = deadlines
        self._slots = slots
        self._worker: Worker | None = None
        self._failed: Worker | None = None
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
            PlaceLost: its host was lost; no instance is blamed.
            CallFailed: it ended, hung, or reports a failure of its own.
            EvaluatorUnavailable: it cannot be started.
        """
        worker = await self.up()
        try:
            result = await worker.ask(method, params, deadline_s, about)
        except PlaceLost:
            raise
        except CallFailed as failure:
            if worker is not self._failed:  # one failure, whatever the number of calls under it
                self._failed = worker
                self.blamed[about] = str(failure)
                worker.kill(str(failure))
            raise
        except UsageError:
            self.blamed.clear()
            raise
        self.blamed.clear()
        return result

    async def up(self) -> Worker:
        """The worker, started and greeted.

        Raises:
            EvaluatorUnavailable: it does not come up, or the place is closed.
            PlaceLost: its host was lost.
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

    async def _start(self) -> Worker:
        if self._worker is not None:  # the next one needs the memory that it held
            await self._worker.close(0)
        if self._closed:
            raise EvaluatorUnavailable(CLOSED)
        self._worker = worker = await self._start_worker()
        if self._closed:  # while it was being started
            await worker.close(0)
            raise EvaluatorUnavailable(CLOSED)
        try:
            with ExitStack() as on_failure:
                on_failure.callback(worker.kill, "the evaluation worker was not waited for")
                self.hello = await worker.ask("hello", {}, self._deadlines.hello_s)
                on_failure.pop_all()
        except PlaceLost:
            raise
        except CallFailed as failure:
            raise EvaluatorUnavailable(f"the worker cannot be used: {failure}") from failure
        return worker
