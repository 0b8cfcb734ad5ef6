"""Which inputs and outputs a task may have, and which inputs a reference may write to.

Others are refused in one sentence.
"""

import pickle
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.ipc.messages import DTYPES
from evolve.worker.ipc.pytree import SPARSE, flatten, tensors_of
from evolve.worker.ipc.tensor_buffer import pickled_tensors

_PLAIN = (Tensor, nn.Parameter, nn.Buffer)
_REMEDIES = {
    "nested": "give its values and offsets as two tensors",
    "quantized": "give .int_repr(), and scale and zero point as further tensors",
    "meta": "make it on a device that holds values",
    "sparse": "return .to_dense(), or its indices and values",
    "mkldnn": "return .to_dense()",
    "dtype": "return .view(torch.uint8), or a tensor of a common type",
    "subclass": "give a plain torch.Tensor, by .as_subclass(torch.Tensor) for one",
}


def check_inputs(task: str, init: Sequence[Any], inputs: Sequence[Any]) -> list[str]:
    """Sentences about inputs with tensors that the judge does not see.

    Args:
        task: Its name.
        init: Inputs of the constructor.
        inputs: Inputs of `forward`.

    Raises:
        UsageError: an input cannot be handed to another process.
    """
    for number, value in enumerate(init):
        _pickled(task, f"init input {number}", value)
    held = [_pickled(task, f"input {number}", value) for number, value in enumerate(inputs)]
    for number, tensor in enumerate(tensors_of(list(inputs))):
        if kind := _kind(tensor, (torch.strided, *SPARSE)):
            raise _refused(task, f"input tensor {number}", tensor, kind)
    return [
        f"input {number}, of type {type(value).__name__}, holds tensors: writes to them are not "
        "judged; a dataclass, named tuple, dict or list shows them"
        for number, value in enumerate(inputs)
        if held[number] != len({id(tensor) for tensor in tensors_of(value)})
    ]


def _pickled(task: str, name: str, value: Any) -> int:
    """How many tensors go to another process with an object."""
    try:
        return pickled_tensors(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        said = str(error).splitlines()[0]
        raise UsageError(
            f"task {task}: {name}, of type {type(value).__name__}, cannot be handed to another "
            f"process ({said}). Give tensors, numbers, and functions and classes from the top "
            "level of a module."
        ) from error


def flat_outcome(task: str, outcome: Any) -> tuple[list[Tensor], str]:
    """See `flatten`; UsageError for an outcome that is something else than tensors."""
    try:
        return flatten(outcome)
    except TypeError as error:
        raise UsageError(
            f"task {task}: of what Model.forward returns, {error}. "
            "Return a tensor, or a tuple, list, dict or dataclass of tensors."
        ) from error


def require_outputs(task: str, outputs: Sequence[Tensor]) -> None:
    """UsageError for a tensor that cannot be taken out of another process and compared."""
    for number, tensor in enumerate(outputs):
        if kind := _kind(tensor, (torch.strided,)):
            raise _refused(task, f"output {number} of Model.forward", tensor, kind)


def require_separate_writes(
    task: str,
    before: Sequence[Tensor],
    after: Sequence[Tensor],
    changed: Sequence[int],
    names: Sequence[str],
) -> None:
    """UsageError unless each write of the reference belongs to one input, in a place of its own.

    Args:
        task: Its name.
        before: The tensors of the inputs.
        after: The same after a call.
        changed: Places of those that the call changes.
        names: Of all of them, in prose.
    """
    for at in changed:
        old, now = before[at], after[at]
        if old.shape != now.shape or old.dtype != now.dtype:
            raise UsageError(
                f"task {task}: Model.forward gives {names[at]} another shape or type "
                f"({_form(old)} becomes {_form(now)}), and a kernel cannot. Let get_inputs() make "
                "it as it is in the end."
            )
        shared = (names[other] for other, own in enumerate(before) if _share(old, own, other == at))
        if (other := next(shared, None)) is not None:
            how = (
                "several of whose elements share memory"
                if other == names[at]
                else f"which shares memory with {other}"
            )
            raise UsageError(
                f"task {task}: Model.forward writes to {names[at]}, {how}, so the effect depends "
                "on the order of reads and writes. Give it memory of its own in get_inputs(), "
                ".clone() for one."
            )


def _form(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"


def _share(some: Tensor, other: Tensor, is_same: bool) -> bool:
    """Whether elements of two inputs, or two elements of one, are in one place."""
    if some.layout is not torch.strided or other.layout is not torch.strided:
        return False
    if some.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    if is_same and some.is_contiguous():
        return False
    sizes = zip(some.shape, some.stride(), strict=True)
    if any(size > 1 and stride == 0 for size, stride in sizes) or some.dtype != other.dtype:
        return True
    taken = torch.zeros(some.untyped_storage().nbytes() // some.itemsize, dtype=torch.bool)
    _in(taken, some).fill_(True)
    return bool(taken.sum() < some.numel() if is_same else _in(taken, other).any())


def _in(elements: Tensor, tensor: Tensor) -> Tensor:
    """Those of a storage that belong to a view of it."""
    return elements.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _kind(tensor: Tensor, layouts: Sequence[torch.layout]) -> str:
    """The kind of an unusual tensor (a key of `_REMEDIES`); empty for a usual one."""
    if tensor.is_nested:
        return "nested"
    if tensor.is_quantized:
        return "quantized"
    if tensor.is_meta:
        return "meta"
    if type(tensor) not in _PLAIN:
        return "subclass"
    if tensor.layout not in layouts:
        return "sparse" if tensor.layout in SPARSE else "mkldnn"
    return "" if tensor.dtype in DTYPES else "dtype"


def _refused(task: str, what: str, tensor: Tensor, kind: str) -> UsageError:
    names = {"subclass": type(tensor).__name__, "dtype": str(tensor.dtype)}
    return UsageError(
        f"task {task}: {what} is a {names.get(kind, kind)} tensor, which the judge does not take; "
        f"{_REMEDIES[kind]}."
    )
