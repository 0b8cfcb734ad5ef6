"""Processes made ready ahead of time.

A process that opens a GPU takes most of a second before it can do anything. A spare has done that;
it holds no candidate code and has seen no inputs.
"""

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence

from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.processes.runner_process import RunnerProcess, close_all

_MAKERS = 3  # the driver makes one context after the other: more of them get little more done


class PreforkPool:
    """Keeps up to `count` processes ready.

    Args:
        make: Gives a fresh process, ready for use; raises InfraFault if it cannot.
        count: How many to keep.
    """

    def __init__(self, make: Callable[[], RunnerProcess], count: int) -> None:
        self._make = make
        self._count = count
        self._ready: deque[RunnerProcess] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._makers = [
            threading.Thread(target=self._keep_ready, daemon=True)
            for _ in range(min(count, _MAKERS))
        ]
        self._under_way = 0
        for maker in self._makers:
            maker.start()

    def take(self) -> RunnerProcess | None:
        """A process that is ready, if there is one."""
        with self._changed:
            runner = self._ready.popleft() if self._ready else None
            self._changed.notify_all()
        return runner

    def _keep_ready(self) -> None:
        while True:
            with self._changed:
                while not self._closed and len(self._ready) + self._under_way >= self._count:
                    self._changed.wait()
                if self._closed:
                    return
                self._under_way += 1
            runner = None
            try:
                runner = self._make()
            except (InfraFault, CandidateFault, OSError):
                self._pause()  # a later request for a process will meet the reason
            finally:
                self._put(runner)

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, timeout=1.0)

    def _put(self, runner: RunnerProcess | None) -> None:
        with self._changed:
            self._under_way -= 1
            if runner is not None and not self._closed:
                self._ready.append(runner)
                runner = None
        if runner is not None:
            _end_now([runner])

    def close(self) -> None:
        """End them all, even during timing."""
        with self._changed:
            self._closed = True
            left = list(self._ready)
            self._ready.clear()
            self._changed.notify_all()
        _end_now(left)
        for maker in self._makers:
            maker.join()


def _end_now(runners: Sequence[RunnerProcess]) -> None:
    for runner in runners:
        runner.end_within(contextlib.nullcontext)
    close_all(runners)
