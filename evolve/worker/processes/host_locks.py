"""The lock of a device between timing and everything else that would disturb it.

Shared by every process on the host. A requester passes a gate first, so that a stream of one
kind of work cannot keep the other waiting for ever. If a lock file cannot be used
InfraFault says so; a holder that keeps one for very long is named on standard error (`lock_files`).
"""

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from evolve.worker.processes.lock_files import opened, wait_for

_AT_ONCE = 4
_OF_HOST = Path("/tmp")
_OF_GPUS = ("cuda", "hip", "core-")  # and of the cores that their judges set apart


def _folder_of(name: str) -> Path:
    """Where the files of a lock lie: of GPUs not where TMPDIR says, jobs of one host may differ."""
    is_common = name.startswith(_OF_GPUS) and os.access(_OF_HOST, os.W_OK)
    return _OF_HOST if is_common else Path(tempfile.gettempdir())


class HostLock:
    """One lock per device: timing holds it alone, compiling and checking hold it together.

    Every acquisition opens the files anew, so threads of one process exclude each other too. Who
    times and who checks take turns, but of a process's threads that wait to time something up to
    `_AT_ONCE` do so one after the other: each change costs the longest piece of work under way.
    """

    def __init__(self, device: str) -> None:
        base = _folder_of(device)
        self._gate = base / f"evolve-{device}.gate"
        self._lock = base / f"evolve-{device}.lock"
        self._of_thread = threading.local()
        self._queue = threading.Condition()  # of those that want it alone
        self._waiting = 0
        self._is_taken = False
        self._served = 0
        self._held = contextlib.ExitStack()
        self._lent: set[int] = set()
        self._takes_back = False  # what is lent, for the threads that have lent it

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Held together with other checks and compilations; nothing if this thread holds it."""
        if self._held_by_thread() is not None:
            yield
            return
        with _open(self._lock) as lock:
            self._share(lock)
            try:
                yield
            finally:
                self._of_thread.lock = None

    @contextlib.contextmanager
    def let_go(self) -> Iterator[None]:
        """Releases the shared locks of this thread within the context, at any depth."""
        lock = self._held_by_thread()
        assert lock is not None
        self._of_thread.lock = None
        fcntl.flock(lock, fcntl.LOCK_UN)
        try:
            yield
        finally:
            self._share(lock)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Held together with others, but for while another thread of this process has it alone.

        For work that stands still then, and takes no lock of the device itself. Other processes of
        the host do not have it alone meanwhile.
        """
        with _open(self._lock) as lock:
            with self._queue:
                self._lent.add(lock)
            try:
                self._join([lock])
                yield
            finally:
                # Before the wait: another judge that waits for it keeps others from taking theirs.
                fcntl.flock(lock, fcntl.LOCK_UN)
                with self._queue:
                    self._queue.wait_for(lambda: not self._takes_back)
                    self._lent.remove(lock)

    def _held_by_thread(self) -> int | None:
        lock: int | None = getattr(self._of_thread, "lock", None)
        return lock

    def _share(self, lock: int) -> None:
        self._join([lock])
        self._of_thread.lock = lock

    def _join(self, locks: Collection[int]) -> None:
        """All at once: a judge that waits to be alone between two would wait for the first."""
        with _open(self._gate) as gate:
            wait_for(gate, fcntl.LOCK_EX)
            for lock in locks:
                wait_for(lock, fcntl.LOCK_SH)

    @contextlib.contextmanager
    def exclusive(self, at_end: Callable[[], object] = lambda: None) -> Iterator["Stopwatch"]:
        """Held alone; the value counts the seconds that it is held.

        `at_end` is called once what was lent is held again, and before another thread has it alone.
        """
        with self._queue:
            self._waiting += 1
            try:
                self._queue.wait_for(lambda: not self._is_taken)
            finally:
                self._waiting -= 1
            self._is_taken = True
        try:
            if not self._served:
                self._take()
            self._served += 1
            watch = Stopwatch()
            try:
                yield watch
            finally:
                watch.stop()
        finally:
            with self._queue:
                is_last = not self._waiting or self._served >= _AT_ONCE
                if is_last:
                    self._held.close()
                    self._served = 0
                    self._takes_back = True
                lent = [*self._lent]
            try:
                if is_last and lent:  # without the queue: another judge may wait for who needs it
                    self._join(lent)
            finally:
                try:
                    at_end()
                finally:
                    with self._queue:
                        self._takes_back = self._is_taken = False
                        self._queue.notify_all()

    def _take(self) -> None:
        with contextlib.ExitStack() as on_failure:
            lock = on_failure.enter_context(_open(self._lock))
            with _open(self._gate) as gate:
                wait_for(gate, fcntl.LOCK_EX)
                with self._queue:
                    for lent in self._lent:
                        fcntl.flock(lent, fcntl.LOCK_UN)
                wait_for(lock, fcntl.LOCK_EX)
            self._held = on_failure.pop_all()


def try_to_hold(name: str) -> int | None:
    """A descriptor that holds the lock of this name on the host; None if another has it.

    Raises:
        InfraFault: its file cannot be used.
    """
    fd = opened(_folder_of(name) / f"evolve-{name}.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    fd = opened(path)
    try:
        yield fd
    finally:
        os.close(fd)


class Stopwatch:
    """Seconds since its making, until stopped."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.monotonic() - self._start
