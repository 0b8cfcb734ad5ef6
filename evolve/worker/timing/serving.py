"""Processes that serve more than one round of a comparison."""

import threading
from collections import defaultdict
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet

from evolve.worker.processes.runner_process import RunnerProcess, close_all

# A verification of four sides opens forty processes and more, and a GPU's driver makes one context
# after the other, 0.1 to 0.2 s each, for all GPUs of a host. What lies between processes is little
# beside what lies between blocks, and a claim is made against eager alone.
_ROUNDS_OF_BASELINE = 2


class Serving:
    """Which processes have served the rounds of one comparison, and which may serve again.

    A baseline's serve two rounds one after the other, in memory that the comparison has until its
    end anyway. A candidate's serve one, and a reference's one of each comparison.

    Attributes:
        references: those that have served in it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # sides start in threads of their own
        self.references: WeakSet[RunnerProcess] = WeakSet()
        self._waiting: defaultdict[str, list[RunnerProcess]] = defaultdict(list)
        self._rounds: WeakKeyDictionary[RunnerProcess, int] = WeakKeyDictionary()

    def take(self, side: str, start: Callable[[], RunnerProcess]) -> RunnerProcess:
        """One of a baseline's that waits, else a fresh one."""
        with self._lock:
            waiting = self._waiting[side]
            found = waiting.pop() if waiting else None
        process = found or start()
        with self._lock:
            self._rounds[process] = self._rounds.get(process, 0) + 1
        return process

    def give_back(self, side: str, process: RunnerProcess) -> list[RunnerProcess]:
        """Those to be closed now: this one, if it has served enough or has ended."""
        if self._rounds[process] == _ROUNDS_OF_BASELINE or not process.alive:
            return [process]
        self._waiting[side].append(process)
        return []

    def close(self) -> None:
        """End those that wait."""
        left = [process for waiting in self._waiting.values() for process in waiting]
        self._waiting.clear()
        close_all(left)
