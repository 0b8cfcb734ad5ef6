"""A reference's longest reduction and the type of its products, seen from its operations."""

from collections.abc import Mapping
from typing import Any

import torch

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.ipc.pytree import tensors_of

# Operations whose outputs keep the input's size although each element depends on a whole row.
_ALONG_DIM = ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp", "_safe_softmax")
_CONTRACTIONS = ("mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot", "linear")
_NOT_REDUCING = ("index", "gather", "select", "slice", "embedding", "narrow", "topk", "split")


class ReductionTrace(DispatchMode):
    """While active, `length` grows to the most terms that one output element adds up.

    Contractions count their inner dimension, convolutions the weights of one output channel,
    attention its keys, other operations the ratio of input to output elements. `operands` are the
    floating types that products take.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 1
        self.operands: set[torch.dtype] = set()

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        self.length = max(self.length, _terms(operation, arguments, outcome))
        if _is_product(operation.overloadpacket.__name__):
            given = tensors_of(list(arguments))
            self.operands.update(one.dtype for one in given if one.is_floating_point())
        return outcome


def _is_product(name: str) -> bool:
    return name in _CONTRACTIONS or "convolution" in name or "attention" in name


def _terms(func: Any, args: tuple[Any, ...], outcome: Any) -> int:
    if func.is_view:
        return 1
    name = func.overloadpacket.__name__
    operands = [tensor for tensor in tensors_of(list(args)) if tensor.numel()]
    results = [tensor for tensor in tensors_of(outcome) if tensor.numel()]
    if not operands or not results or name.startswith(_NOT_REDUCING):
        return 1
    if name in _CONTRACTIONS:
        return int(operands[-2].shape[-1]) if operands[-2].dim() else 1
    if "convolution" in name:
        weight = args[1]
        return int(weight.numel() // min(weight.shape[:2]))
    if "attention" in name:
        return int(args[1].shape[-2])
    if name.startswith("nll_loss"):
        return int(args[1].numel())
    if name in _ALONG_DIM:
        return int(args[0].shape[args[1]]) if args[0].dim() else 1
    return max(t.numel() for t in operands) // min(t.numel() for t in results)
