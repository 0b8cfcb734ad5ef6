"""Memory to be shared with a runner, of a fixed size (Linux memfd)."""

import contextlib
import fcntl
import mmap
import os
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

_SEALS = fcntl.F_ADD_SEALS if hasattr(fcntl, "F_ADD_SEALS") else 1033
_SEAL_SIZE = 0x0001 | 0x0002 | 0x0004  # seal, shrink, grow
_SEAL_WRITING = 0x0008
_MADV_POPULATE_READ = 22

Piece = tuple[NDArray[np.uint8], NDArray[np.uint8]]
"""Bytes of a landing, and those that are to appear there."""


def make_sealed(values: torch.Tensor) -> int:
    """A descriptor of new memory with these bytes, which no process changes after this.

    Written as a file is: by a mapping it would take a fault for each page, and twice the time.
    """
    fd = _make(values.numel())
    left = values.numpy().data
    while left:
        left = left[os.write(fd, left) :]
    fcntl.fcntl(fd, _SEALS, _SEAL_SIZE | _SEAL_WRITING)
    return fd


def make_shared(size: int) -> int:
    """A descriptor of new memory, all zeros, that both sides may write to."""
    fd = _make(size)
    fcntl.fcntl(fd, _SEALS, _SEAL_SIZE)
    return fd


class Landing:
    """The place of inputs of timed blocks in one process, block after block.

    The process maps it privately, and sees what is written here as long as it has written nothing
    there itself; or, if a task's calls write to their inputs, as it is. Its writes to this memory
    harm no other process: none gets it, and the expected outputs are stored elsewhere.
    """

    def __init__(self, size: int) -> None:
        self.fd, self.size = make_shared(size), size
        self._memory = np.frombuffer(mmap.mmap(self.fd, size), dtype=np.uint8)

    def write(self, values: torch.Tensor) -> None:
        """Let bytes appear there, from the first on.

        Not by torch: its threads would spin for a while afterwards, on cores that are to be timed.
        """
        np.copyto(self._memory[: values.numel()], values.numpy())

    def pieces(self, values: torch.Tensor, bounds: Sequence[int]) -> list[Piece]:
        """The values up to each of the bounds, from the one before it on, and their places."""
        source = values.numpy()
        return [
            (self._memory[start:end], source[start:end]) for start, end in pairwise((0, *bounds))
        ]

    def close(self) -> None:
        """Give the memory back once the process has ended."""
        os.close(self.fd)
        self._memory = np.empty(0, dtype=np.uint8)


def _make(size: int) -> int:
    fd = os.memfd_create("evolve", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.fchmod(fd, 0o400)  # or a receiver could leave something in its attributes
    os.ftruncate(fd, size)
    return fd


def map_privately(fd: int, size: int) -> torch.Tensor:
    """The bytes, all pages present; writes stay in the process."""
    return _mapped(fd, size, mmap.MAP_PRIVATE)


def map_shared(fd: int, size: int) -> torch.Tensor:
    """The bytes, all pages present; no page is copied when it is written to.

    Of sealed memory, which is read-only, the same as `map_privately`.
    """
    try:
        return _mapped(fd, size, mmap.MAP_SHARED)
    except PermissionError:
        return map_privately(fd, size)


def _mapped(fd: int, size: int, flags: int) -> torch.Tensor:
    mapping = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    with contextlib.suppress(OSError):  # before Linux 5.14 the pages come with the first touch
        mapping.madvise(_MADV_POPULATE_READ)
    return torch.frombuffer(mapping, dtype=torch.uint8)
