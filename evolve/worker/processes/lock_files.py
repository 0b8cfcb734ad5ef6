"""The files that the host-wide locks are made of.

They lie where every user of the host may write: a file of their name may be anything, and anyone
may hold them. Neither hangs a judge without a word.
"""

import contextlib
import errno
import fcntl
import os
import stat
import sys
import threading
import time
from pathlib import Path

from evolve.worker.base import phases
from evolve.worker.base.infra import InfraFault
from evolve.worker.sandbox import procfs

# Usual work is not waited for as long. Less than a worker has to start (120 s): who is stopped by
# a lock there says so before it is given up.
LONG_S = 100.0
_GAP_S = 1.0  # from a file's making until all may open it: a moment, if its maker is not stopped
_GAP_POLL_S = 0.02
# For want of these no file is to be blamed, and it passes.
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def opened(path: Path) -> int:
    """A descriptor of the file, made by the first process; every user of the host may lock it.

    Raises:
        InfraFault: something else lies there, or it cannot be opened.
        OSError: for want of something that passes, such as descriptors.
    """
    try:
        fd = _opened_in_time(path)
    except OSError as error:
        if error.errno in _PASSING:
            raise
        is_link = error.errno == errno.ELOOP
        why = "it is a symbolic link" if is_link else str(error.strerror)
        raise _unusable(path, why) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _unusable(path, "it is no regular file")
    return fd


def _opened_in_time(path: Path) -> int:
    """As `_opened`; a file that another user has just made may not be open to all yet."""
    deadline = time.monotonic() + _GAP_S
    while True:
        try:
            return _opened(path)
        except PermissionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_GAP_POLL_S)


def _opened(path: Path) -> int:
    """The file; a link is not followed, and the other end of a pipe is not waited for.

    An existing file is opened without O_CREAT, which the kernel refuses in a shared folder to all
    but the file's owner, root included (`fs.protected_regular`).
    """
    # flock asks for no more than reading
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(fd, 0o666)  # independent of the umask
            return fd


def _unusable(path: Path, why: str) -> InfraFault:
    try:
        owner = path.lstat().st_uid
    except OSError:
        remedy = "Let TMPDIR name a folder in which this user may make files"
    else:
        remedy = f"While no judge runs remove it, or ask its owner (uid {owner}) to"
    return InfraFault(f"the lock {path} cannot be used: {why}. {remedy}.")


def wait_for(fd: int, how: int) -> None:
    """As flock; a wait that is unusually long is told once on standard error."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return
    except BlockingIOError:
        path, file = Path(f"/proc/self/fd/{fd}").readlink(), os.fstat(fd)
    told = threading.Timer(LONG_S, _tell, (path, file, LONG_S))
    told.daemon = True
    told.start()
    try:
        with phases.waiting(lambda: _for_whom(file)):
            fcntl.flock(fd, how)  # to ask now and then would let others overtake
    finally:
        told.cancel()


def _for_whom(file: os.stat_result) -> str:
    """The holder that a wait for the lock is for; empty if this process itself holds it."""
    if os.getpid() in _holders(file):
        return ""
    return "waiting for another judge on this machine"


def _tell(path: Path, file: os.stat_result, seconds: float) -> None:
    own = os.getpid()
    holders = ["this process" if pid == own else f"process {pid}" for pid in _holders(file)]
    by = f", held by {', '.join(holders)}" if holders else ""
    print(
        f"evolve: has waited {seconds:.0f} s for the lock {path}{by}; "
        "if its holder hangs, end that process or ask its owner to",
        file=sys.stderr,
        flush=True,
    )


def _holders(file: os.stat_result) -> list[int]:
    """Processes that hold it, as far as the kernel names them: not those of other containers."""
    with contextlib.suppress(OSError, ValueError):
        return procfs.flocks(file)
    return []
