"""Temporary folders that do not outlive their process for long, however it ends.

The owner of a folder holds a lock on it, which the system releases when the owner is killed. The
next process that makes such a folder removes all those without a lock.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

PREFIX = "evolve-scratch-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_ABANDONED_S = 60.0  # a younger folder may be about to be locked by its owner


class ScratchFolder:
    """A temporary folder; removed by `close`, at the end of a `with` block or of the process.

    Args:
        kind: a word of its name, for those who look at the folder.

    Attributes:
        path: of the folder, without symbolic links.
    """

    def __init__(self, kind: str) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-")).resolve()
        lock = os.open(self.path, _OPEN)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._end = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove the folder, once."""
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_abandoned() -> None:
    """Remove this user's scratch folders whose process has ended; a symbolic link is none."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # gone meanwhile, or not to be opened
            lock = os.open(folder, _OPEN)
            try:
                facts = os.fstat(lock)
                if facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > _ABANDONED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _remove(path: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # and not a process that was forked from it, and ends
        shutil.rmtree(path, ignore_errors=True)
    os.close(lock)
