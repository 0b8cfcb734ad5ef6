"""Launches for the operations that the compiler left whole (`worker.build.decompositions`)."""

import ast
from collections.abc import Sequence
from typing import Any

from operators.local.templates.launch import Launch
from operators.local.templates.operations import loss, norm, recurrence, scan
from operators.local.templates.tensors import Tensor, Tensors

PREFIX = "torch.ops.evolve."
_TENSORS = {
    "norm": 3,
    "batch_norm": 5,
    "scan": 2,
    "recurrence": 5,
    "cross_entropy": 2,
    "total": 3,
}


def launches(
    call: ast.Call,
    out: Tensor,
    tensors: Tensors,
    precisions: Sequence[str],
    multiprocessors: int,
    losses: dict[str, int],
) -> tuple[Launch, ...] | None:
    """For a call of one of the operators; None if a tensor is not known or not in order.

    So it is if a device is too small for it.

    Args:
        call: of the operator.
        out: its result.
        tensors: of the output code.
        precisions: of `tl.dot` for float32, the default first.
        multiprocessors: of the device.
        losses: numbers of the texts of losses, to which new ones are added.
    """
    name = ast.unparse(call.func).removeprefix(PREFIX).removesuffix(".default")
    count = _TENSORS[name]
    operands: list[Any] = [tensors[node] for node in call.args[:count]]
    for node, operand in zip(call.args, operands, strict=False):
        if operand is None and ast.unparse(node) != "None":
            return None
    known = [operand for operand in (*operands, out) if operand is not None]
    if not all(_in_order(tensor) for tensor in known):
        return None
    given = [ast.literal_eval(node) for node in call.args[count:]]
    match name, given:
        case "norm", [kind, view, affine, share, eps]:
            x, weight, bias = operands
            settings = {"AFFINE": tuple(affine), "KIND": kind, "SHARE": share, "EPS": eps}
            return norm.launches(x, weight, bias, out, settings, view, multiprocessors)
        case "batch_norm", [shape, eps]:
            x, mean, variance, weight, bias = operands
            return (norm.batch_norm(x, (mean, variance), weight, bias, out, shape, eps),)
        case "scan", [view, product, reverse, exclusive]:
            x, mask = operands
            settings = {"product": product, "reverse": reverse, "exclusive": exclusive}
            return (scan.launch(x, mask, out, view, **settings),)
        case "recurrence", [kind]:
            return recurrence.launches(operands, out, kind, precisions, multiprocessors)
        case "cross_entropy", [view, ignored]:
            x, target = operands
            return (loss.cross_entropy(x, target, out, view, ignored),)
        case "total", [term, outcome, shape, scale]:
            return loss.launches(operands, out, shape, term, outcome, scale, losses)
    raise AssertionError(f"{name} with {len(given)} settings")


def _in_order(tensor: Tensor) -> bool:
    """Whether elements lie side by side in the order of their indices."""
    step = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.stride), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True
