"""Which inputs and outputs a task may have; others are refused in one sentence."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.ipc.messages import DTYPES
from evolve.worker.ipc.pytree import SPARSE, flatten, tensors_of

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


def require_inputs(task: str, inputs: Sequence[Any]) -> None:
    """UsageError for a tensor that cannot be handed to another process."""
    for number, tensor in enumerate(tensors_of(list(inputs))):
        if kind := _kind(tensor, (torch.strided, *SPARSE)):
            raise _refused(task, f"input tensor {number}", tensor, kind)


def flat_outcome(task: str, outcome: Any) -> tuple[list[Tensor], str]:
    """See `flatten`; UsageError for an outcome that is something else than tensors."""
    try:
        return flatten(outcome)
    except TypeError as error:
        raise UsageError(
            f"task {task}: of what Model.forward returns, {error}. "
            "Return a tensor, or a tuple, list or dict of tensors."
        ) from error


def require_outputs(task: str, outputs: Sequence[Tensor]) -> None:
    """UsageError for a tensor that cannot be taken out of another process and compared."""
    for number, tensor in enumerate(outputs):
        if kind := _kind(tensor, (torch.strided,)):
            raise _refused(task, f"output {number} of Model.forward", tensor, kind)


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
