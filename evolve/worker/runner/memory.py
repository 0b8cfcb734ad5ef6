"""How a runner gets at the memory that its judge sends, and waits for its device."""

import os
from typing import Protocol

import torch

from evolve.worker.ipc.memfd import map_privately
from evolve.worker.ipc.turns import Turns
from evolve.worker.reference.placing import CPU


class Access(Protocol):
    """In a runner: one for the life of the process."""

    place: torch.device
    limit: int  # bytes for tensors; 0 if the system has its own

    def open(self, fd: int, size: int) -> torch.Tensor:
        """Memory as bytes; valid for the next two calls at least, or until `drop`."""
        ...

    def stage(self, fd: int, size: int) -> torch.Tensor:
        """The place of a block's inputs."""
        ...

    def finish(self) -> None:
        """Wait until the device has done everything."""
        ...

    def reserve(self, size: int) -> None:
        """Have so many bytes at hand, so that a timed block need not ask the system for them."""
        ...

    def drop(self) -> None:
        """The block is over, or the call: its inputs are no longer needed."""
        ...


class CpuAccess:
    """Private mappings of shared memory; mappings for blocks are made once."""

    place = CPU
    limit = 0

    def __init__(self) -> None:
        self._landing = torch.empty(0, dtype=torch.uint8)
        self._turns: Turns | None = None
        self._known: dict[str, int] = {}  # inode numbers, which a descriptor that is open has alone

    def open(self, fd: int, size: int) -> torch.Tensor:
        return map_privately(fd, size)

    def stage(self, fd: int, size: int) -> torch.Tensor:
        if self._is_new("landing", fd):
            self._landing = map_privately(fd, os.fstat(fd).st_size)
        return self._landing[:size]

    def turns(self, fd: int) -> Turns:
        """The page by which calls are handed over."""
        if self._turns is None or self._is_new("turns", fd):
            self._turns = Turns(fd)
        return self._turns

    def _is_new(self, what: str, fd: int) -> bool:
        """Whether it is other memory than the last; that is mapped, so its number is taken."""
        number = os.fstat(fd).st_ino
        before, self._known[what] = self._known.get(what), number
        return before != number

    def finish(self) -> None:
        pass

    def reserve(self, size: int) -> None:
        torch.zeros(size, dtype=torch.uint8)  # freed at once; malloc keeps its pages

    def drop(self) -> None:
        pass
