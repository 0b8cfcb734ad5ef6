"""Processes of references that stay from one comparison to the next.

Half of the processes that a comparison needs are the reference's, and each takes a GPU's driver a
third of a second. One that has not served a comparison yet comes first, and none serves more than
`ROUNDS` of its rounds, which would have something in common.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from evolve.worker.devices.base import Device
from evolve.worker.processes.runner_process import Needs, RunnerProcess
from evolve.worker.session.memory_model import trusted_bytes
from evolve.worker.session.prepared_task import PreparedTask

ROUNDS = 2
Served = WeakKeyDictionary[RunnerProcess, int]
"""How many rounds of a comparison each process has served."""


@dataclass(frozen=True, slots=True)
class _Idle:
    """One that waits for its next round."""

    task: str
    needs: Needs
    process: RunnerProcess
    size: int


class References:
    """Keeps some, of whichever tasks were timed last.

    Args:
        start: Gives a fresh one of a task, ready to be timed.
        device: Where they run, and which says how many to keep and how much they may take.
    """

    def __init__(
        self, start: Callable[[PreparedTask, Needs], RunnerProcess], device: Device
    ) -> None:
        self._start = start
        self._device = device
        self._idle: deque[_Idle] = deque()  # those that were given back first go first
        self._in_use: WeakKeyDictionary[RunnerProcess, int] = WeakKeyDictionary()  # their sizes
        self._lock = threading.Lock()

    def take(self, task: PreparedTask, needs: Needs, served: Served) -> RunnerProcess:
        """One with the reference's models of all timed cases, which may serve one more round."""
        with self._lock:
            size = self._size(task, needs)
            found = self._waiting((task.token, needs, size), served)
            if found:
                self._idle.remove(found)
        process = found.process if found else self._start(task, needs)
        with self._lock:
            self._in_use[process] = size
            served[process] = served.get(process, 0) + 1
        return process

    def _waiting(self, wanted: tuple[str, Needs, int], served: Served) -> _Idle | None:
        """The one that has served least, if it may serve again."""
        fitting = [one for one in self._idle if (one.task, one.needs, one.size) == wanted]
        least = min(fitting, key=lambda one: served.get(one.process, 0), default=None)
        return least if least and served.get(least.process, 0) < ROUNDS else None

    def give_back(
        self, task: PreparedTask, needs: Needs, process: RunnerProcess
    ) -> list[RunnerProcess]:
        """Those that are to be closed now, maybe this one."""
        with self._lock:
            size = self._in_use.pop(process)
            if not process.alive or size > self._device.warm_bytes // 2:
                return [process]
            self._idle.append(_Idle(task.token, needs, process, size))
            return list(self._surplus())

    def leave(self) -> list[RunnerProcess]:
        """All that are kept, to be closed."""
        with self._lock:
            processes = [idle.process for idle in self._idle]
            self._idle.clear()
        return processes

    def _surplus(self) -> Iterator[RunnerProcess]:
        """No longer kept: those that were given back first."""
        most, most_bytes = self._device.references, self._device.warm_bytes // 2
        while len(self._idle) > most or sum(idle.size for idle in self._idle) > most_bytes:
            yield self._idle.popleft().process

    def _size(self, task: PreparedTask, needs: Needs) -> int:
        """Bytes of the device that one takes."""
        tensors = trusted_bytes(task.timed, self._device) + needs.block
        return max(self._device.pool_bytes, tensors) + self._device.process_bytes
