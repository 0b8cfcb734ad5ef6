"""Memory that a process holds by descriptors alone: files without a name, buffers of sockets."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_MAX_BUFFER = Path("/proc/sys/net/core/wmem_max")
_USUAL_BUFFER = 212_992  # if that is not to be read
_MAX_COUNTED = 16 << 20  # or a few sockets of an honest program would be too many on some hosts


class Held(NamedTuple):
    """Bytes on disk in files that have no name any more; and at most so many in buffers."""

    nameless: int
    buffers: int


def held_by(pids: Iterable[int]) -> Held:
    """Bytes that processes hold together; those that have ended or are unreadable count nothing."""
    nameless: dict[tuple[int, int], int] = {}
    sockets: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as found:
            for entry in found:
                with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                    status = entry.stat()
                    if stat.S_ISSOCK(status.st_mode):
                        sockets.add(status.st_ino)
                    elif _is_nameless(status) and not _is_ours(entry):
                        nameless[status.st_dev, status.st_ino] = 512 * status.st_blocks
    return Held(sum(nameless.values()), len(sockets) * _buffer())


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
