"""Trees of tensors as a runner gets them."""

from typing import Any

from evolve.worker.devices.cpu.device import CpuDevice
from evolve.worker.ipc.memfd import make_sealed
from evolve.worker.ipc.tensor_buffer import Shared


def shared(*trees: Any) -> Shared:
    """As a device shares them, for as long as the tests run."""
    buffer = CpuDevice().make_buffer(list(trees))
    fd = make_sealed(buffer.memory)
    return Shared(fd, buffer, buffer.memory)
