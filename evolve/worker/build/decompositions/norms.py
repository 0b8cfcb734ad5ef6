"""Normalisations in an exported graph: torch's own, and those that are spelled out.

The statistic of a row x is, by kind:

- `layer`: its mean and variance; (x - mean) / sqrt(sum (x - mean)^2 * share + eps)
- `l1`: x / (sum |x| * share + eps)
- `l2`: x / sqrt(sum x^2 * share + eps); with the share 1/size this is RMSNorm
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from evolve.worker.build.decompositions.nodes import (
    arguments,
    is_call,
    is_dense,
    only_user,
    put,
    rows,
    value,
)


@dataclass(frozen=True)
class _Norm:
    """Arguments of `evolve::norm`, for the node that computes the same."""

    x: Any
    kind: str
    view: Sequence[int]
    weight: Any = None
    bias: Any = None
    affine: Sequence[int] = (1, 1, 1)
    share: float = 1.0
    eps: float = 0.0


def keep_norms(graph: Any) -> None:
    """Replace each that is recognised."""
    for node in list(graph.nodes):
        found = next((norm for read in _READERS if (norm := read(node))), None)
        if found is not None and _is_like(node, found.x):
            found, node = _with_weight(found, node)
            tensors = found.x, found.weight, found.bias
            places = list(found.view), list(found.affine)
            operator = torch.ops.evolve.norm.default
            put(graph, node, operator, *tensors, found.kind, *places, found.share, found.eps)


def keep_batch_norms(graph: Any) -> None:
    """Replace those in evaluation of an input; others are folded into the operation before."""
    for node in list(graph.nodes):
        if is_call(node, "batch_norm.default"):
            _keep_batch_norm(graph, node)


def _is_like(node: Any, x: Any) -> bool:
    out, given = value(node), value(x)
    return (
        out is not None
        and given is not None
        and (out.shape, out.dtype)
        == (
            given.shape,
            given.dtype,
        )
    )


def _shape(node: Any) -> tuple[int, ...]:
    tensor = value(node)
    assert tensor is not None
    return tuple(tensor.shape)


# --- torch's own ----------------------------------------------------------------------------------


def _layer(node: Any) -> _Norm | None:
    if not is_call(node, "layer_norm.default", "rms_norm.default"):
        return None
    given = arguments(node)
    x, dims = given["input"], len(given["normalized_shape"])
    eps, is_rms = given["eps"], is_call(node, "rms_norm.default")
    tensor = value(x)
    if tensor is None or not is_dense(x):
        return None
    if eps is None and tensor.dtype != torch.float32:
        return None  # which epsilon is torch's own choice then
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    size = math.prod(tensor.shape[-dims:])
    view, affine = (tensor.numel() // size, size, 1), (1, size, 1)
    if is_rms:
        return _Norm(x, "l2", view, given["weight"], None, affine, 1 / size, eps)
    return _Norm(x, "layer", view, given["weight"], given["bias"], affine, 1 / size, eps)


def _group(node: Any) -> _Norm | None:
    """Of groups of channels; of each channel alone if it is an instance norm."""
    if not is_call(node, "group_norm.default", "instance_norm.default"):
        return None
    given = arguments(node)
    if not is_dense(given["input"]):
        return None
    batch, channels, *space = _shape(given["input"])
    groups = given.get("num_groups", channels)
    if is_call(node, "instance_norm.default") and (
        given["running_mean"] is not None or not given["use_input_stats"]
    ):
        return None
    own, area = channels // groups, math.prod(space)
    view, affine = (batch * groups, own * area, 1), (groups, own, area)
    x, weight, bias = given["input"], given["weight"], given["bias"]
    return _Norm(x, "layer", view, weight, bias, affine, 1 / view[1], given["eps"])


def _keep_batch_norm(graph: Any, node: Any) -> None:
    given = arguments(node)
    x = given["input"]
    statistics = given["running_mean"], given["running_var"]
    if given["training"] or None in statistics or x.op != "placeholder" or not is_dense(x):
        return
    view = list(rows(_shape(x), [1]) or ())
    weights = given["weight"], given["bias"]
    operator = torch.ops.evolve.batch_norm.default
    put(graph, node, operator, x, *statistics, *weights, view, given["eps"])


# --- spelled out ----------------------------------------------------------------------------------


def _quotient(node: Any) -> _Norm | None:
    """X / d or x * rsqrt(s)."""
    if not is_call(node, "div.Tensor", "mul.Tensor") or not all(
        isinstance(argument, Node) for argument in node.args
    ):
        return None
    x, other = node.args
    if is_call(node, "div.Tensor"):
        return _by_root(x, other, "sqrt.default") or _by_length(x, other) or _by_mean(x, other)
    return _by_root(x, other, "rsqrt.default") or _by_root(other, x, "rsqrt.default")


def _by_root(x: Any, other: Any, root: str) -> _Norm | None:
    """The root of a mean or sum of squares, and of a number beside it."""
    is_power = root == "sqrt.default" and is_call(other, "pow.Tensor_Scalar")
    if not is_call(other, root) and not (is_power and other.args[1] == 0.5):
        return None
    inner, eps = _with_number(other.args[0])
    return _statistic(x, inner, "l2", eps, _is_square)


def _by_mean(x: Any, other: Any) -> _Norm | None:
    inner, eps = _with_number(other)
    return _statistic(x, inner, "l1", eps, lambda node, x: is_call(node, "abs.default"))


def _by_length(x: Any, other: Any) -> _Norm | None:
    if not is_call(other, "linalg_vector_norm.default"):
        return None
    given = arguments(other)
    view = rows(_shape(other.args[0]), given["dim"])
    is_spread = given["keepdim"] or not given["dim"]
    if other.args[0] is not x or given["ord"] not in (1, 2) or not is_spread:
        return None
    if view is None or not is_dense(x):
        return None
    return _Norm(x, "l1" if given["ord"] == 1 else "l2", view)


def _statistic(
    x: Any, node: Any, kind: str, eps: float, is_term: Callable[[Any, Any], bool]
) -> _Norm | None:
    if not is_call(node, "mean.dim", "sum.dim_IntList", "mean.default", "sum.default"):
        return None
    given = arguments(node)
    term, dims = given["self"], given.get("dim")
    if not is_term(term, x) or term.args[0] is not x or not (given.get("keepdim") or not dims):
        return None
    view = rows(_shape(x), dims)
    if view is None or given["dtype"] is not None or not is_dense(x):
        return None
    share = 1 / view[1] if "mean" in str(node.target) else 1.0
    return _Norm(x, kind, view, share=share, eps=eps)


def _with_number(node: Any) -> tuple[Any, float]:
    """A node, and the number that is added to it."""
    if is_call(node, "add.Tensor", "add.Scalar") and len(node.args) == 2 and not node.kwargs:
        for one, other in (node.args, node.args[::-1]):
            if isinstance(other, float | int):
                return one, float(other)
    return node, 0.0


def _is_square(node: Any, x: Any) -> bool:
    if is_call(node, "mul.Tensor"):
        return all(argument is x for argument in node.args)
    is_power = is_call(node, "pow.Tensor_Scalar") and node.args[1] == 2
    return is_power or is_call(node, "square.default")


def _with_weight(norm: _Norm, node: Any) -> tuple[_Norm, Any]:
    """With the multiplication by a weight of each element of a row that follows, if one does."""
    user, (_, size, inner) = only_user(node), norm.view
    if (
        norm.weight is not None
        or norm.kind != "l2"
        or inner != 1
        or not is_call(user, "mul.Tensor")
    ):
        return norm, node
    assert user is not None
    weights = [argument for argument in user.args if argument is not node]
    if len(weights) != 1 or not is_dense(weights[0]) or not _is_like(user, norm.x):
        return norm, node
    (weight,) = weights
    assert isinstance(weight, Node)
    if weight.op != "placeholder" or _shape(weight) != (size,):
        return norm, node
    found = _Norm(norm.x, "l2", norm.view, weight, None, (1, size, 1), norm.share, norm.eps)
    return found, user


_READERS = (_layer, _group, _quotient)
