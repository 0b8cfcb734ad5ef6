"""Trees of tensors as a runner gets them."""

from typing import Any

from evolve.worker.device_cpu import CpuDevice
from evolve.worker.sealed import make_sealed
from evolve.worker.slab import Shared


def shared(*trees: Any) -> Shared:
    """As a device shares them, for as long as the tests run."""
    slab = CpuDevice().make_slab(list(trees))
    fd = make_sealed(slab.size, lambda memory: memory.copy_(slab.memory))
    return Shared(fd, slab, slab.memory)
