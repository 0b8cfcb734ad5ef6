"""Taking a candidate's outputs into custody: a copy of their bytes, before anything is compared."""

import math

import torch
from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.device_cpu import CpuDevice
from evolve.worker.expected import Expected
from evolve.worker.faults import CandidateFault
from evolve.worker.slab import Slab, span
from evolve.worker.wire import Output, TensorAt

_MAX_ELEMENTS = 1 << 40
_SLACK = 4  # an output may lie in a storage this many times as large


def same_structure(output: Output, expected: Expected) -> bool:
    """Whether nesting, shapes and dtypes are the reference's, so that bytes are worth taking."""
    described = [(at.dtype, at.shape) for at in output.tensors]
    wanted = [(own.dtype, tuple(own.shape)) for own in expected.reference]
    return spec_of(output) == expected.spec and described == wanted


def spec_of(output: Output) -> str:
    """The nesting that a runner claims for its output."""
    return output.tree.decode(errors="replace")


def described(output: Output) -> list[Tensor]:
    """Tensors with the shapes and dtypes that a runner claims, and no memory."""
    for at in output.tensors:
        if math.prod(at.shape) > _MAX_ELEMENTS:
            raise CandidateFault(Status.WRONG_SHAPE, f"an output has shape {at.shape}")
    return [torch.empty(at.shape, dtype=at.dtype, device="meta") for at in output.tensors]


def take(device: CpuDevice, pid: int, output: Output, inputs: Slab) -> list[Tensor]:
    """Copies of the output tensors, from the runner's memory.

    Raises:
        CandidateFault: an output lies in an input, is spread out, or is not there.
    """
    start, end = output.inputs_at, output.inputs_at + inputs.size
    for at in output.tensors:
        first, last = at.address, at.address + size_in_bytes(at)
        if size_in_bytes(at) and first < end and last > start:
            raise CandidateFault(Status.ALIASED, "an output shares memory with an input")
    return [take_tensor(device, pid, at) for at in output.tensors]


def size_in_bytes(at: TensorAt) -> int:
    """From the first byte of a tensor to its last."""
    return span(at.shape, at.stride) * at.dtype.itemsize


def take_tensor(device: CpuDevice, pid: int, at: TensorAt) -> Tensor:
    """A copy of one tensor of which shape and dtype have been found sensible."""
    raw = buffer_for(at)
    read_into(device, pid, at.address, raw)
    return as_tensor(raw, at)


def buffer_for(at: TensorAt) -> Tensor:
    """Memory for the bytes of a tensor, its pages present."""
    size = size_in_bytes(at)
    if size > _SLACK * math.prod(at.shape) * at.dtype.itemsize:
        raise CandidateFault(
            Status.WRONG_SHAPE, f"an output of shape {at.shape} has strides {at.stride}"
        )
    return torch.zeros(size, dtype=torch.uint8)


def read_into(device: CpuDevice, pid: int, address: int, raw: Tensor) -> None:
    """Fill a buffer from the runner's memory; CandidateFault where it has no such memory."""
    if not raw.numel():
        return
    try:
        device.read(pid, address, raw.data_ptr(), raw.numel())
    except OSError as error:
        raise CandidateFault(
            Status.WRONG_VALUE, "an output is not in the memory that it is said to be in"
        ) from error


def as_tensor(raw: Tensor, at: TensorAt) -> Tensor:
    """The bytes seen as the tensor that they are of."""
    if at.dtype is torch.bool:
        return raw.ne(0).as_strided(at.shape, at.stride)
    return raw.view(at.dtype).as_strided(at.shape, at.stride)


def inputs_changed(device: CpuDevice, pid: int, address: int, inputs: Slab) -> bool:
    """Whether the runner's private view of its inputs differs from ours."""
    seen = torch.empty(inputs.size, dtype=torch.uint8)
    try:
        device.read(pid, address, seen.data_ptr(), inputs.size)
    except OSError:
        return True
    return not torch.equal(seen, inputs.memory)
