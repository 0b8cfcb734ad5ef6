"""The host-wide lock between timing and everything else that uses the cores.

Shared by every process on the host: timing holds it alone, compiling and checking hold it together.
Both sides pass a gate first, so that a stream of one kind cannot keep the other waiting for ever.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path


class HostLock:
    """One lock per device.

    Every acquisition opens the files anew, so threads of one process exclude each other too.
    """

    def __init__(self, device: str) -> None:
        base = Path(tempfile.gettempdir())
        self._gate = base / f"evolve-{device}.gate"
        self._lock = base / f"evolve-{device}.lock"

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Held together with other checks and compilations."""
        with self._open(self._lock) as lock:
            with self._open(self._gate) as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(lock, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator["Stopwatch"]:
        """Held alone; the value counts the seconds that it is held."""
        with self._open(self._lock) as lock:
            with self._open(self._gate) as gate:
                fcntl.flock(gate, fcntl.LOCK_EX)
                fcntl.flock(lock, fcntl.LOCK_EX)
            watch = Stopwatch()
            try:
                yield watch
            finally:
                watch.stop()

    @contextlib.contextmanager
    def _open(self, path: Path) -> Iterator[int]:
        fd = _opened(path)
        try:
            yield fd
        finally:
            os.close(fd)


def try_to_hold(name: str) -> int | None:
    """A descriptor that holds the lock of this name on the host; None where another has it."""
    fd = _opened(Path(tempfile.gettempdir()) / f"evolve-{name}.lock")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _opened(path: Path) -> int:
    """The file, made by whoever comes first; every user of the host may lock it.

    What is there is opened without O_CREAT, which the kernel refuses in a shared folder to all but
    the file's owner, root included (`fs.protected_regular`).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW  # flock asks for no more
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(fd, 0o666)  # whatever the umask
            return fd


class Stopwatch:
    """Seconds since its making, until stopped."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.seconds = 0.0

    def stop(self) -> None:
        self.seconds = time.monotonic() - self._start
