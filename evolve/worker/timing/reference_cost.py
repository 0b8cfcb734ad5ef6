"""The least bytes and operations of a call of the reference, counted while it runs once.

An estimate, not a bound. Counted are the bytes of inputs, parameters and outputs, each once, and
the floating-point operations of matrix products, convolutions and attention (by
`torch.utils.flop_counter`). Not counted among those: elementwise operations and reductions,
recurrent layers, and intermediate values of the reference. Unused structure is counted: a causal
mask halves the operations of attention, a sparse or triangular operand needs fewer bytes, operands
found in a cache cost less than from memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.base.operation_cost import (
    PICKING,
    elements_of,
    moves_data,
    operations_of,
    products_of,
)
from evolve.worker.ipc.pytree import map_tensors, tensors_of
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code

KINDS: Mapping[torch.dtype, str] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one call: bytes moved, bytes of the outputs among them, operations by kind of operand.

    Kinds are the values of `KINDS`, and `tf32` if torch lets a GPU read fp32 that way. `operations`
    are all of them, as `work` counts; one for each element if that cannot count.
    """

    moved_bytes: int
    output_bytes: int
    flops: Mapping[str, int]
    operations: int


@torch.no_grad()
def count_cost(task: str, model: nn.Module, inputs: list[Any]) -> Cost:
    """Run the reference once and count; inputs and global random state are left as they are.

    Raises:
        UsageError: the task's code fails.
    """
    own = map_tensors(Tensor.clone, inputs)
    with task_code(task, "Model.forward"), seeded(0), _Counter() as counter:
        outcome = model(*own)
    sizes = zip(tensors_of(own), map(_nbytes, tensors_of(inputs)), strict=True)
    given = {_storage(tensor): size for tensor, size in sizes}
    own_state = (*model.parameters(), *model.buffers())
    given |= {_storage(t): t.untyped_storage().nbytes() for t in own_state}
    read = sum(min(size, counter.touched.get(storage, 0)) for storage, size in given.items())
    made = {_storage(t): _nbytes(t) for t in tensors_of(outcome) if _storage(t) not in given}
    written = sum(made.values())
    return Cost(
        moved_bytes=read + written,
        output_bytes=written,
        flops=dict(counter.flops),
        operations=counter.operations,
    )


class _Counter(DispatchMode):
    """While active: operations by kind, and the most bytes that one operation read of a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: dict[str, int] = {}
        self.operations = 0
        self.touched: dict[int, int] = {}
        self._alive: list[Any] = []  # or an address could be given out twice

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        if operation.is_view:
            return outcome
        name = operation.overloadpacket.__name__
        operands = tensors_of([*arguments, *options.values()])
        self._read(name, operands, outcome)
        call = operation, arguments, options, outcome
        if products := products_of(*call):
            kind = _kind(name, operands[0])
            self.flops[kind] = self.flops.get(kind, 0) + products
        if not moves_data(operation):
            counted = operations_of(*call)
            self.operations += elements_of(*call[1:]) if counted is None else counted
        return outcome

    def _read(self, name: str, operands: list[Tensor], outcome: Any) -> None:
        for index, tensor in enumerate(operands):
            size = _nbytes(tensor)
            if index == 0 and name in PICKING:
                size = min(size, sum(map(_nbytes, tensors_of(outcome))))
            storage = _storage(tensor)
            self.touched[storage] = max(self.touched.get(storage, 0), size)
        self._alive += [tensor.untyped_storage() for tensor in operands]


def _kind(name: str, operand: Tensor) -> str:
    """Of a product: by torch's settings, which let a GPU's convolutions cut fp32 to tf32."""
    if operand.dtype == torch.float32 and operand.is_cuda:
        of_convolutions = torch.backends.cudnn.conv  # type: ignore[attr-defined]
        settings = of_convolutions if "conv" in name else torch.backends.cuda.matmul
        if settings.fp32_precision == "tf32":
            return "tf32"
    return KINDS.get(operand.dtype, str(operand.dtype))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _nbytes(tensor: Tensor) -> int:
    """Bytes of the elements, those that are only repeated counted once."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
