"""Shared memory that nobody can change once it is written, its maker included (Linux memfd)."""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Callable

import torch

_SEALS = fcntl.F_ADD_SEALS if hasattr(fcntl, "F_ADD_SEALS") else 1033
_SEAL_ALL = 0x0001 | 0x0002 | 0x0004 | 0x0008  # seal, shrink, grow, write
_MADV_POPULATE_READ = 22


def make_sealed(size: int, write: Callable[[torch.Tensor], None]) -> int:
    """A descriptor of new memory; `write` gets its bytes once."""
    fd = os.memfd_create("evolve", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o400)  # or who gets it could leave something in its attributes
    os.ftruncate(fd, size)
    with mmap.mmap(fd, size) as writable:
        view = torch.frombuffer(writable, dtype=torch.uint8)
        write(view)
        del view
    fcntl.fcntl(fd, _SEALS, _SEAL_ALL)
    return fd


def map_privately(fd: int, size: int) -> torch.Tensor:
    """The bytes, all pages present; writes stay in the process."""
    mapping = mmap.mmap(fd, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with contextlib.suppress(OSError):  # before Linux 5.14 the pages come with the first touch
        mapping.madvise(_MADV_POPULATE_READ)
    return torch.frombuffer(mapping, dtype=torch.uint8)
