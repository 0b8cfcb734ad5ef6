"""Mappings of shared memory in a process, by the kernel's books (Linux)."""

import os
import re
from dataclasses import dataclass

from evolve.worker.sandbox import procfs

_MAPPED = re.compile(
    r"^([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) ([0-9a-f]+):([0-9a-f]+) (\d+) +/memfd:", re.M
)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Addresses `start` to `end` show the memory from byte `offset` on."""

    start: int
    end: int
    offset: int

    def overlaps(self, start: int, size: int) -> bool:
        return size > 0 and start < self.end and start + size > self.start


def mappings_of(pid: int, fd: int) -> list[Mapping]:
    """All that process `pid` has of the memory (a memfd) that `fd` stands for here.

    None if the process is gone, or the descriptor is -1: no such memory was sent.
    """
    if fd < 0:
        return []
    own = os.fstat(fd)
    try:
        lines = procfs.maps(pid)
    except OSError:
        return []
    found = []
    for start, end, offset, major, minor, inode in _MAPPED.findall(lines):
        if int(inode) == own.st_ino and os.makedev(int(major, 16), int(minor, 16)) == own.st_dev:
            found.append(Mapping(int(start, 16), int(end, 16), int(offset, 16)))
    return found
