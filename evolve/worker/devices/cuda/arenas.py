"""Memory of a GPU that is lent to one runner after another.

To make, map, free and wipe memory takes the driver milliseconds for each gigabyte, in which it
holds up every process of the host. So memory that a runner has used is not given back to the
driver: it is overwritten and lent again.
"""

import contextlib
import os
import random
import threading
from dataclasses import dataclass

import torch

from evolve.worker.base import gpu_driver

_MAX_WASTE = 1.5  # an arena may be so many times as large as the request
_STEPS = 4  # sizes between one power of two and the next: arenas of like sizes serve each other
_MAX_STEP = 256 << 20  # several arenas of gigabytes have to fit beside each other


@dataclass(frozen=True, slots=True, eq=False)
class Arena:
    """A piece of such memory: `memory` shows it here (bytes), `fd` is for another process."""

    mapping: gpu_driver.Mapping
    fd: int
    memory: torch.Tensor

    @property
    def size(self) -> int:
        """Bytes."""
        return self.mapping.size

    def close(self) -> None:
        """Give it back to the driver."""
        os.close(self.fd)
        self.mapping.close()


class Arenas:
    """Keeps idle ones, up to `capacity` bytes; those that were returned first go first."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free: list[Arena] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> Arena:
        """One of at least `size` bytes. Its content looks like values, and is none.

        Works on the GPU.

        Raises:
            DriverError: the device has no such memory left.
        """
        arena = self._reused(size) or self._made(size)
        arena.memory.view(torch.float32).fill_(random.gauss(0, 1))
        torch.cuda.synchronize()
        return arena

    def give_back(self, arena: Arena) -> None:
        """The process that had it has ended, or no longer maps it."""
        with self._lock:
            self._free.append(arena)
            surplus = []
            while sum(free.size for free in self._free) > self._capacity:
                surplus.append(self._free.pop(0))
        for free in surplus:
            free.close()

    def release(self) -> None:
        """Give all that is not lent back to the driver."""
        with self._lock:
            surplus, self._free = self._free, []
        for free in surplus:
            free.close()

    def _reused(self, size: int) -> Arena | None:
        with self._lock:
            fitting = [free for free in self._free if size <= free.size <= _MAX_WASTE * size]
            if not fitting:
                return None
            arena = min(fitting, key=lambda free: free.size)
            self._free.remove(arena)
            return arena

    def _made(self, size: int) -> Arena:
        try:
            mapping, fd = gpu_driver.allocate(_rounded(size))
        except gpu_driver.DriverError:
            self.release()
            mapping, fd = gpu_driver.allocate(size)
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(os.close, fd)
            on_failure.callback(mapping.close)
            memory = mapping.tensor()
            on_failure.pop_all()
        return Arena(mapping, fd, memory)


def _rounded(size: int) -> int:
    """The next usual size."""
    step = max(1, (1 << max(size - 1, 1).bit_length()) // (2 * _STEPS))
    step = min(step, _MAX_STEP)
    return -(-size // step) * step
