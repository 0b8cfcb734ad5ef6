"""Temporary folders that do not outlive their process for long, however it ends.

The owner of a folder holds a lock on it, which the system releases when the owner is killed. The
next process that makes such a folder removes all those without a lock. Only names of locked folders
have the mark of their host and its boot: locks of other hosts may be invisible here, and on some
file systems (NFS) a folder cannot be locked.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import shutil
import tempfile
import time
import weakref
from pathlib import Path

PREFIX = "evolve-scratch-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_BOOT = Path("/proc/sys/kernel/random/boot_id")
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
        self.path, lock = _locked(kind) or (_made(kind), None)
        self._end = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Remove the folder, once."""
        self._end()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.close()


def remove_abandoned() -> None:
    """Remove this user's scratch folders whose process has ended on this host, since it booted.

    A symbolic link is none.
    """
    mark = host_mark()
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-{mark}-*") if mark else ():
        with contextlib.suppress(OSError):  # gone meanwhile, or not to be opened
            lock = os.open(folder, _OPEN)
            try:
                facts = os.fstat(lock)
                if facts.st_uid == os.geteuid() and time.time() - facts.st_mtime > _ABANDONED_S:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


@functools.cache
def host_mark() -> str:
    """Of this host since it booted, for names of folders; empty where the boot cannot be told."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return ""
    return hashlib.sha256(f"{platform.node()} {boot}".encode()).hexdigest()[:12]


def _locked(kind: str) -> tuple[Path, int] | None:
    """A new folder with the mark, and the lock on it; None if there can be none."""
    if not (mark := host_mark()):
        return None
    path = _made(f"{kind}-{mark}")
    lock = os.open(path, _OPEN)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # NFS locks no descriptor that is only read, as those of folders are
        os.close(lock)
        path.rmdir()
        return None
    return path, lock


def _made(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{kind}-")).resolve()


def _remove(path: Path, lock: int | None, owner: int) -> None:
    if os.getpid() == owner:  # and not a process that was forked from it, and ends
        shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)
