"""A call's writes to its inputs, for tasks whose reference writes to them.

It is read where it belongs, in the memory of the inputs: a candidate's process is not asked for it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from evolve.core.evaluation import Status
from evolve.worker.base.faults import CandidateFault
from evolve.worker.devices.base import Device
from evolve.worker.devices.window import Layout
from evolve.worker.ipc.messages import TensorAt
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.ipc.tensor_buffer import Shared, TensorBuffer, unpack
from evolve.worker.processes.runner_process import RunnerProcess


def take_changes(
    device: Device, process: RunnerProcess, inputs: Shared, address: int, changed: Sequence[int]
) -> list[Tensor]:
    """Copies of the tensors that a call may change, of the first tree of the inputs.

    Args:
        device: That the process runs on.
        process: The runner.
        inputs: Of the call.
        address: Where it says that these are.
        changed: Places of the tensors among those of the inputs.

    Raises:
        CandidateFault: it has written to another tensor too, or beyond one.
    """
    now = device.inputs_now(process, inputs, address)
    require_rest_unchanged(inputs.buffer, now, changed)
    seen = tensors_of(unpack(inputs.trees[0], now))
    return [seen[at].clone() for at in changed]


def require_rest_unchanged(slab: TensorBuffer, now: Tensor, changed: Sequence[int]) -> None:
    """CandidateFault if bytes differ from the slab's outside of the tensors that may change."""
    allowed = slab.memory.clone()
    for tree in slab.trees:
        ours, theirs = tensors_of(unpack(tree, allowed)), tensors_of(unpack(tree, now))
        for at in changed:
            ours[at].copy_(theirs[at])
    if not torch.equal(allowed, now):
        raise CandidateFault(
            Status.MUTATED_INPUT, "forward wrote to inputs that the reference leaves as they are"
        )


def places_of_changes(slab: TensorBuffer, changed: Sequence[int]) -> list[Layout]:
    """For each call of a slab where the tensors that it may change lie, from the slab's start."""
    start = slab.memory.data_ptr()
    found = []
    for at in range(len(slab.trees)):
        tensors = tensors_of(slab.tree(at))
        found.append(tuple(_place(tensors[number], start) for number in changed))
    return found


def _place(tensor: Tensor, start: int) -> TensorAt:
    offset = tensor.data_ptr() - start
    return TensorAt(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), offset)
