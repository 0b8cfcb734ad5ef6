"""Stopping a process in a sandbox by signals, alone or with all that it has started."""

import contextlib
import os
import signal
import threading
import time
from abc import ABC, abstractmethod

from evolve.worker.sandbox import procfs
from evolve.worker.sandbox.supervisor import descendants

STANDS_S = 0.5  # until a stopped process stands; longer only where a thread is deep in the kernel
_STANDS_POLL_S = 0.0002


class StoppableProcess(ABC):
    """A process that can be stopped and go on.

    Attributes:
        pid: Its process id.
    """

    pid: int

    def __init__(self) -> None:
        self._frozen_s = 0.0
        self._frozen_at: float | None = None
        self._thawing = threading.Lock()
        self._sandbox: int | None = None

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether it has not ended yet."""

    def pause(self, seconds: float = STANDS_S) -> bool:
        """Stop the process where it is; those it has started go on.

        Returns:
            Whether it stands by then. Longer than a moment it takes if a thread is deep in the
            kernel, or if it evades signals.
        """
        _signal(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + seconds
        while procfs.is_moving(self.pid):
            if time.monotonic() > deadline:
                return False
            time.sleep(_STANDS_POLL_S)
        return True

    def resume(self) -> None:
        """Let it go on, also if another's turn has yet to thaw it, which then wakes it no more."""
        self.thaw()
        _signal(self.pid, signal.SIGCONT)

    def freeze(self) -> None:
        """Stop it and all that it has started, and wait until they stand, `STANDS_S` at most.

        Until `thaw`, no deadline comes nearer: it executes or compiles a source, or waits.
        """
        self._frozen_at = time.monotonic()
        deadline = self._frozen_at + STANDS_S
        while moving := [pid for pid in self._family() if procfs.is_moving(pid)]:
            for pid in moving:
                _signal(pid, signal.SIGSTOP)
            if time.monotonic() > deadline:
                return
            time.sleep(_STANDS_POLL_S)

    def thaw(self) -> None:
        """Let them go on if they are frozen."""
        with self._thawing:
            if self._frozen_at is None:
                return
            for pid in self._family():
                _signal(pid, signal.SIGCONT)
            self._frozen_s, self._frozen_at = self._frozen_until_now(), None

    def _frozen_until_now(self) -> float:
        """Seconds, of its whole life."""
        since = self._frozen_at
        return self._frozen_s + (time.monotonic() - since if since is not None else 0.0)

    def _family(self) -> list[int]:
        """The process and those of the candidate beside it; none once it has ended."""
        with contextlib.suppress(OSError):
            return descendants(self._parent()) if self.alive else []
        return []

    def _parent(self) -> int:
        """The parent in the sandbox, which adopts orphans of the candidate."""
        if self._sandbox is None:
            self._sandbox = int(procfs.stat(self.pid)[1])
        return self._sandbox


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # the next request learns how it ended
        os.kill(pid, number)
