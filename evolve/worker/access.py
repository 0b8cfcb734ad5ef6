"""How a runner gets at the memory that its referee sends, and waits for its device."""

from typing import Protocol

import torch

from evolve.worker.placing import CPU
from evolve.worker.sealed import map_privately


class Access(Protocol):
    """In a runner: one for the life of the process."""

    place: torch.device
    limit: int  # bytes for tensors; 0 where the system has its own

    def open(self, fd: int, size: int) -> torch.Tensor:
        """Memory as bytes; valid for the next two calls at least, or until `drop`."""
        ...

    def stage(self, fd: int, size: int) -> torch.Tensor:
        """Where the inputs of a block will be."""
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
    """Private mappings of shared memory."""

    place = CPU
    limit = 0

    def open(self, fd: int, size: int) -> torch.Tensor:
        return map_privately(fd, size)

    def stage(self, fd: int, size: int) -> torch.Tensor:
        return map_privately(fd, size)

    def finish(self) -> None:
        pass

    def reserve(self, size: int) -> None:
        torch.zeros(size, dtype=torch.uint8)  # freed at once; malloc keeps its pages

    def drop(self) -> None:
        pass
