"""Trees of tensors as a runner gets them."""

from typing import Any

from evolve.worker.device_cpu import CpuDevice
from evolve.worker.slab import Shared


def shared(*trees: Any) -> Shared:
    slab = CpuDevice().make_slab(list(trees))
    return Shared(slab.fd, slab, slab.memory)
