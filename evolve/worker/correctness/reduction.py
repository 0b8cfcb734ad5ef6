"""A reference's longest reduction and the type of its products, seen from its operations."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.tolerance import unit_roundoff
from evolve.worker.ipc.pytree import tensors_of

_ATEN = torch.ops.aten
PRODUCTS = {  # by the places of their operands, whatever the overload
    _ATEN.mm: (0, 1), _ATEN.bmm: (0, 1), _ATEN.mv: (0, 1),
    _ATEN.dot: (0, 1), _ATEN.vdot: (0, 1), _ATEN.linear: (0, 1),
    _ATEN.addmm: (1, 2), _ATEN.addmm_: (1, 2), _ATEN.baddbmm: (1, 2), _ATEN.baddbmm_: (1, 2),
    _ATEN.addbmm: (1, 2), _ATEN.addbmm_: (1, 2), _ATEN.addmv: (1, 2), _ATEN.addmv_: (1, 2),
    _ATEN.convolution_backward: (0, 1, 2),
}  # fmt: skip
# Operations whose outputs keep the input's size although each element depends on a whole row.
_ALONG_DIM = ("_softmax", "_log_softmax", "cumsum", "cumprod", "logcumsumexp", "_safe_softmax")
_CONTRACTIONS = frozenset(PRODUCTS) - {_ATEN.convolution_backward}
_NOT_REDUCING = ("index", "gather", "select", "slice", "embedding", "narrow", "topk", "split")


class ReductionTrace(DispatchMode):
    """While active, `length` grows to the most terms that one output element adds up.

    Contractions count their inner dimension, convolutions the weights of one output channel,
    attention its keys, other operations the ratio of input to output elements. `operands` has the
    most exact floating type that each product takes, of attention's two products both.
    """

    def __init__(self) -> None:
        super().__init__()
        self.length = 1
        self.operands: list[torch.dtype] = []

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        self.length = max(self.length, _terms(operation, arguments, outcome))
        self.operands += types_of_products(operation, arguments)
        return outcome


def types_of_products(operation: Any, arguments: tuple[Any, ...]) -> list[torch.dtype]:
    """The most exact floating type that each product of an operation takes, if it makes any."""
    types = {one.dtype for one in _operands(operation, arguments) if one.is_floating_point()}
    if not types:
        return []
    products = 2 if "attention" in operation.overloadpacket.__name__ else 1
    return [min(types, key=unit_roundoff)] * products


def _operands(operation: Any, arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors that an operation multiplies and sums up; none if it is no such operation."""
    name = operation.overloadpacket.__name__
    places = PRODUCTS.get(operation.overloadpacket, ())
    if not places and "convolution" in name:
        places = (0, 1)
    if not places and "attention" in name:
        return tensors_of(list(arguments))[:3]
    return tensors_of([arguments[place] for place in places])


def _terms(func: Any, args: tuple[Any, ...], outcome: Any) -> int:
    if func.is_view:
        return 1
    name = func.overloadpacket.__name__
    operands = [tensor for tensor in tensors_of(list(args)) if tensor.numel()]
    results = [tensor for tensor in tensors_of(outcome) if tensor.numel()]
    if not operands or not results or name.startswith(_NOT_REDUCING):
        return 1
    if func.overloadpacket in _CONTRACTIONS:
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
