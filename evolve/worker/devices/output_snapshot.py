"""A candidate's outputs: a copy of their bytes is taken before anything is compared."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.base.infra import InfraFault
from evolve.worker.correctness.oracle import Expected
from evolve.worker.devices.base import Device
from evolve.worker.devices.cuda import pinned_memory
from evolve.worker.devices.window import Layout, size_in_bytes
from evolve.worker.ipc.messages import Output, TensorAt
from evolve.worker.ipc.tensor_buffer import Shared
from evolve.worker.processes.runner_process import RunnerProcess
from evolve.worker.sandbox.mappings import Mapping

_MAX_ELEMENTS = 1 << 40
_SLACK = 4  # an output may lie in a storage this many times as large


def same_structure(output: Output, expected: Expected) -> bool:
    """Whether nesting, shapes and dtypes are the reference's, so that bytes are worth taking."""
    described = [(at.dtype, at.shape) for at in output.tensors]
    wanted = [(own.dtype, tuple(own.shape)) for own in expected.returned]
    return spec_of(output) == expected.spec and described == wanted


def spec_of(output: Output) -> str:
    """The nesting that a runner claims for its output."""
    return output.tree.decode(errors="replace")


def described(output: Output) -> list[Tensor]:
    """Tensors with the shapes and dtypes that a runner claims, and no memory."""
    for at in output.tensors:
        if math.prod(max(size, 1) for size in at.shape) > _MAX_ELEMENTS:
            raise CandidateFault(Status.WRONG_SHAPE, f"an output has shape {at.shape}")
    return [torch.empty(at.shape, dtype=at.dtype, device="meta") for at in output.tensors]


def take(
    device: Device,
    process: RunnerProcess,
    output: Output,
    inputs: Shared,
    aliased: Sequence[int] = (),
) -> list[Tensor]:
    """Copies of the output tensors, from the runner's memory; those `aliased` may lie in inputs.

    Raises:
        CandidateFault: an output lies in an input, is spread out, or is not there.
    """
    claimed = Mapping(output.inputs_at, output.inputs_at + inputs.size, 0)
    known = device.inputs_in(process, inputs)
    places = [
        (at.address, size_in_bytes(at))
        for number, at in enumerate(output.tensors)
        if number not in aliased
    ]
    require_apart(places, [claimed, *known])
    buffers = buffers_for(device, output.tensors)
    read_all(device, process, [at.address for at in output.tensors], buffers, aliased)
    return as_tensors(buffers, output.tensors)


def own_memory(
    device: Device, process: RunnerProcess, tensors: Sequence[TensorAt], inputs: Shared
) -> frozenset[int]:
    """Addresses of those of some tensors that do not lie in the inputs."""
    mappings = device.inputs_in(process, inputs)
    return frozenset(
        at.address for at in tensors
        if size_in_bytes(at)
        and not any(one.overlaps(at.address, size_in_bytes(at)) for one in mappings)
    )  # fmt: skip


def require_apart(places: Iterable[tuple[int, int]], inputs: list[Mapping]) -> None:
    """CandidateFault if one of some places (address, bytes) lies in memory of the inputs."""
    for address, size in places:
        if any(mapping.overlaps(address, size) for mapping in inputs):
            raise CandidateFault(Status.ALIASED, "an output shares memory with an input")


def buffers_for(device: Device, layout: Layout, on_host: bool = False) -> list[Tensor]:
    """Memory for the bytes of some tensors, its pages present.

    With `on_host` it is page-locked memory of the host, which has to be reserved (`pinned_memory`).
    """
    for at in layout:
        if size_in_bytes(at) > _SLACK * math.prod(at.shape) * at.dtype.itemsize:
            raise CandidateFault(
                Status.WRONG_SHAPE, f"an output of shape {at.shape} has strides {at.stride}"
            )
    sizes = [size_in_bytes(at) for at in layout]
    if on_host:
        try:
            return [pinned_memory.buffer(size) for size in sizes]
        except RuntimeError as error:  # more than was reserved
            raise InfraFault("the host locks no more pages for outputs") from error
    return [torch.zeros(size, dtype=torch.uint8, device=device.place) for size in sizes]


def read_all(
    device: Device,
    process: RunnerProcess,
    addresses: Sequence[int],
    buffers: list[Tensor],
    aliased: Sequence[int] = (),
) -> None:
    """Fill buffers from the runner's memory; CandidateFault if it has no such memory.

    Those with a number in `aliased` may lie in its inputs.
    """
    filled = [at for at, raw in enumerate(buffers) if raw.numel()]
    places, into = [addresses[at] for at in filled], [buffers[at] for at in filled]
    try:
        device.read(process, places, into, [n for n, at in enumerate(filled) if at in aliased])
    except OSError as error:
        raise CandidateFault(
            Status.WRONG_VALUE, f"an output is not in the memory that it is said to be in ({error})"
        ) from error


def as_tensors(buffers: list[Tensor], layout: Layout) -> list[Tensor]:
    """The bytes seen as the tensors that they are of."""
    return [_as_tensor(raw, at) for raw, at in zip(buffers, layout, strict=True)]


def _as_tensor(raw: Tensor, at: TensorAt) -> Tensor:
    if at.dtype is torch.bool:
        return raw.ne(0).as_strided(at.shape, at.stride)
    return raw.view(at.dtype).as_strided(at.shape, at.stride)
