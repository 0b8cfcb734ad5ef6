"""Processes of baselines, which serve more than one round of a comparison."""

import threading
from collections import defaultdict
from collections.abc import Callable
from weakref import WeakKeyDictionary

from evolve.worker.processes.runner_process import RunnerProcess, close_all

# A verification of four sides opens forty processes and more, and a GPU's driver makes one context
# after the other, 0.1 to 0.2 s each, for all GPUs of a host. What lies between processes is little
# beside what lies between blocks, and a claim is made against eager alone.
_ROUNDS = 4


class BaselineProcesses:
    """A comparison's processes of baselines: each serves four rounds, one after the other.

    They have memory that the comparison keeps until its end anyway.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # sides start in threads of their own
        self._waiting: defaultdict[str, list[RunnerProcess]] = defaultdict(list)
        self._rounds: WeakKeyDictionary[RunnerProcess, int] = WeakKeyDictionary()

    def take(self, side: str, start: Callable[[], RunnerProcess]) -> RunnerProcess:
        """One of the side that waits, else a fresh one."""
        with self._lock:
            waiting = self._waiting[side]
            found = waiting.pop() if waiting else None
        process = found or start()
        with self._lock:
            self._rounds[process] = self._rounds.get(process, 0) + 1
        return process

    def give_back(self, side: str, process: RunnerProcess) -> list[RunnerProcess]:
        """Those to be closed now: this one, if it has served enough or has ended."""
        with self._lock:
            if self._rounds[process] == _ROUNDS or not process.alive:
                return [process]
            self._waiting[side].append(process)
        return []

    def close(self) -> None:
        """End those that wait."""
        close_all([process for waiting in self._waiting.values() for process in waiting])
        self._waiting.clear()
