"""Trees of tensors as a runner gets them."""

from typing import Any

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.memfd import make_sealed
from evolve.worker.ipc.tensor_buffer import Shared


def shared(*trees: Any) -> Shared:
    """As a device shares them, for as long as the tests run."""
    slab = CpuDevice().make_slab(list(trees))
    fd = make_sealed(slab.size, lambda memory: memory.copy_(slab.memory))
    return Shared(fd, slab, slab.memory)
