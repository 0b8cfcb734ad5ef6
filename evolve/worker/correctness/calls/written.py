"""Whether a call writes to memory, even if the values that it writes are there already."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from evolve.core.errors import UsageError
from evolve.worker.correctness.tolerance import computable


def is_written(
    tensors: Sequence[Tensor], call: Callable[[], object], same: Callable[[Tensor, Tensor], bool]
) -> bool:
    """Whether `call`, which is made twice, writes to the memory of any of these dense tensors.

    Torch counts its own writes. Those by other means are found by other values that lie in the
    memory during the second call; if it fails because of them, none is known.

    Raises:
        UsageError: the first call fails.
    """
    versions = list(map(_version, tensors))
    call()
    if versions != list(map(_version, tensors)):
        return True
    own = [one.clone() for one in tensors]
    try:
        for one in tensors:
            _put(one, other_values(one))
        others = [one.clone() for one in tensors]
        try:
            call()
        except UsageError:
            return False
        return not all(map(same, others, tensors))
    finally:
        for one, values in zip(tensors, own, strict=True):
            _put(one, values)


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


@torch.inference_mode()
def _put(tensor: Tensor, values: Tensor) -> None:
    """Write values to it, once where several elements are one (an expanded tensor)."""
    for dim, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dim] > 1:
            tensor, values = tensor.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
    tensor.copy_(values)


def other_values(tensor: Tensor) -> Tensor:
    """Finite ones of the same sign; integers and truths in another order: they may be indices."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return computable(tensor).flatten().flip(0).view(tensor.shape).to(tensor.dtype)
    values = computable(tensor)
    changes = values.isfinite() & (values != 0)
    return torch.where(changes, values / 2, torch.ones_like(values)).to(tensor.dtype)
