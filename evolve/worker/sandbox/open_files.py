"""Memory that stands in no process's books: files without a name, buffers of sockets."""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from evolve.worker.sandbox import procfs

_MAX_BUFFER = Path("/proc/sys/net/core/wmem_max")
_USUAL_BUFFER = 212_992  # if that is not to be read
_MAX_COUNTED = 16 << 20  # or a few sockets of an honest program would be too many on some hosts


class Held(NamedTuple):
    """Bytes on disk in files that have no name any more; and at most so many in buffers."""

    nameless: int
    buffers: int


def held_by(pids: Sequence[int]) -> Held:
    """Bytes that processes hold together; those that have ended or are unreadable count nothing.

    In a network of their own all sockets count, also those that no process has open any more: sent
    to another socket and not received, or closed with something under way.
    """
    nameless: dict[tuple[int, int], int] = {}
    sockets: set[int] = set()
    for pid in pids:
        for entry, status in _open_in(pid):
            if stat.S_ISSOCK(status.st_mode):
                sockets.add(status.st_ino)
            elif _is_nameless(status) and not _is_ours(entry):
                nameless[status.st_dev, status.st_ino] = 512 * status.st_blocks
    count = max(len(sockets), _sockets_of_own_network(pids))
    return Held(sum(nameless.values()), count * _buffer())


def _open_in(pid: int) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """What the threads of a process have open; all that live have the same (`seccomp`)."""
    for thread in procfs.threads(pid):  # a first one that has ended has nothing open
        entry = None
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/task/{thread}/fd") as found:
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    yield entry, entry.stat()
        if entry is not None:
            return


def _sockets_of_own_network(pids: Sequence[int]) -> int:
    """Sockets of the first network namespace among the processes that is not this process's."""
    ours = Path("/proc/self/ns/net").stat().st_ino
    for pid in pids:
        for thread in procfs.threads(pid):
            folder = Path(f"/proc/{pid}/task/{thread}")
            with contextlib.suppress(OSError):  # it has ended
                if (folder / "ns/net").stat().st_ino == ours:
                    break
                used = (folder / "net/sockstat").read_text().splitlines()[0]
                return int(used.rpartition(" ")[2])
    return 0


def _is_nameless(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and not status.st_nlink


def _is_ours(entry: os.DirEntry[str]) -> bool:
    """Whether it is memory that the judge has sent: a runner can make none."""
    try:
        return str(Path(entry.path).readlink()).startswith("/memfd:")
    except OSError:  # a path that is too long
        return False


def _buffer() -> int:
    """Bytes that wait in one socket at most: the kernel doubles the requested size."""
    try:
        return min(2 * int(_MAX_BUFFER.read_text()), _MAX_COUNTED)
    except OSError:
        return 2 * _USUAL_BUFFER
