"""The actor on a node that holds a GPU, with a worker for each search there."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import evolve
from evolve.core.errors import EvaluatorUnavailable
from evolve.evaluation.local import package_path, worker_environment
from evolve.worker.service.dispatch.faults import FAULTS, PlaceLost
from evolve.worker.service.dispatch.process import WorkerProcess

SEATS = 4  # searches with a worker on one GPU: each holds a few GB of its memory
SILENCE_S = 60.0  # after which a search that does nothing here has gone
IDLE_S = 120.0  # without any search, after which the judge ends and its GPU is free

Answer = tuple[str, Any]  # "" and the result, or the name of a fault and its message


@dataclass(slots=True)
class _Guest:
    """A search that is known here, and its worker if it has a seat."""

    heard: float
    seated: bool = False
    worker: WorkerProcess | None = None
    number: int = 0  # of the worker: calls to one before it are refused
    calls: int = 0
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)


class Judge:
    """One GPU, or a node's CPU, and the workers of several searches.

    Each search has a worker process of its own, so that its candidates cannot affect another
    search. The lock of the host holds their timing apart. Answers are values, not
    exceptions: an exception says that the actor itself is at fault.

    Args:
        end: ends the actor, once no search has been heard of for some time.
    """

    def __init__(self, end: Callable[[], None] | None = None) -> None:
        self._guests: dict[str, _Guest] = {}
        self._heard = time.monotonic()
        self._end = end or _end_actor
        self._watch: asyncio.Task[None] | None = None
        unused = threading.Timer(IDLE_S, self._end_if_unused)  # no loop runs yet
        unused.daemon = True
        unused.start()

    async def about(self) -> dict[str, str]:
        """Its version, host, node of Ray, and GPU among those of the node."""
        ray = import_module("ray")
        return {
            "version": evolve.__version__,
            "host": socket.gethostname(),
            "node": ray.get_runtime_context().get_node_id(),
            "gpu": "".join(str(number) for number in ray.get_gpu_ids()),
        }

    async def beat(self, search: str) -> dict[str, Any]:
        """Register a search as alive; the phases of its calls, and the number of searches."""
        self._watch = self._watch or asyncio.create_task(self._end_when_idle())
        worker = self._hear(search).worker
        return {"phases": dict(worker.phases) if worker else {}, "searches": len(self._guests)}

    async def start(self, search: str, words: Sequence[str], python: str | None) -> Answer:
        """Start a worker in the place of the search's last; its number.

        Args:
            search: whose it is.
            words: of its command line, after the interpreter.
            python: the interpreter (None: this one).
        """
        guest = self._hear(search)
        if not guest.seated and sum(each.seated for each in self._guests.values()) >= SEATS:
            return PlaceLost.__name__, f"{SEATS} other searches are there"
        guest.seated = True
        async with guest.starting:
            if guest.worker is not None:
                await guest.worker.close(0)
            environment = worker_environment(package_path())
            environment.pop("OMP_NUM_THREADS", None)  # Ray sets it to one
            try:
                guest.worker = await WorkerProcess.spawn(
                    [python or sys.executable, *words], environment
                )
            except EvaluatorUnavailable as error:
                return EvaluatorUnavailable.__name__, str(error)
            guest.number += 1
            return "", guest.number

    async def ask(
        self,
        search: str,
        number: int,
        method: str,
        params: Mapping[str, Any],
        deadline_s: float,
        about: str,
    ) -> Answer:
        """The answer of the search's worker to a call."""
        guest = self._hear(search)
        if guest.worker is None or guest.number != number:
            return PlaceLost.__name__, "the judge has been started again"
        guest.calls += 1
        try:
            return "", await guest.worker.ask(method, params, deadline_s, about)
        except tuple(FAULTS.values()) as fault:
            return type(fault).__name__, str(fault)
        finally:
            guest.calls -= 1
            self._hear(search)

    async def kill(self, search: str, number: int, why: str) -> None:
        """End the search's worker at once."""
        guest = self._guests.get(search)
        if guest and guest.worker and guest.number == number:
            guest.worker.kill(why)

    async def close(self, search: str, number: int, close_s: float) -> None:
        """End the search's worker on its own terms."""
        guest = self._guests.get(search)
        if guest and guest.worker and guest.number == number:
            await guest.worker.close(close_s)

    async def leave(self, search: str, *, forget: bool) -> None:
        """Give the search's seat to others; `forget` it if it has ended."""
        guest = self._guests.get(search)
        if guest is None:
            return
        guest.seated = False
        if forget:
            del self._guests[search]
        if guest.worker is not None:
            await guest.worker.close(0)

    def _hear(self, search: str) -> _Guest:
        self._heard = time.monotonic()
        guest = self._guests.setdefault(search, _Guest(self._heard))
        guest.heard = self._heard
        return guest

    def _end_if_unused(self) -> None:
        """End if the search that asked for the judge ended before the judge had started."""
        if self._watch is None:
            self._end()

    async def _end_when_idle(self) -> None:
        """Forget searches that have ended without a word, and then end."""
        while time.monotonic() - self._heard < IDLE_S:
            await asyncio.sleep(min(SILENCE_S, IDLE_S) / 10)
            silent_since = time.monotonic() - SILENCE_S
            for search, guest in list(self._guests.items()):
                if not guest.calls and guest.heard < silent_since:
                    await self.leave(search, forget=True)
            if self._guests:
                self._heard = time.monotonic()
        self._end()


def _end_actor() -> None:
    ray = import_module("ray")
    ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
