"""Losses in an exported graph that are no sum of terms: each row's cross-entropy, its cosine."""

from typing import Any

import torch

from evolve.worker.build.decompositions.nodes import (
    Adding,
    arguments,
    is_call,
    is_dense,
    put,
    rows,
    value,
)

_MEAN, _SUM = 1, 2  # how torch numbers reductions
_ATEN = torch.ops.aten


def keep_losses(graph: Any) -> None:
    """Replace each cross-entropy by one of rows, each cosine by sums that `keep_totals` knows."""
    for node in list(graph.nodes):
        if is_call(node, "cross_entropy_loss.default"):
            _keep_cross_entropy(graph, node)
        elif is_call(node, "cosine_similarity.default"):
            _spell_cosine(graph, node)


def _keep_cross_entropy(graph: Any, node: Any) -> None:
    given = arguments(node)
    x, target = given["self"], given["target"]
    if not is_dense(x) or not is_dense(target, [torch.int64, torch.int32]):
        return
    tensor, out = value(x), value(node)
    assert tensor is not None and out is not None
    if given["weight"] is not None or given["label_smoothing"] != 0 or tensor.dim() < 2:
        return
    view = list(rows(tensor.shape, [1]) or ())
    add = Adding(graph, node)
    found = add(torch.ops.evolve.cross_entropy.default, x, target, view, given["ignore_index"])
    if given["reduction"] in (_MEAN, _SUM):
        found = add(_ATEN.sum.default, found, dtype=torch.float32)
        if given["reduction"] == _MEAN:
            count = add(_ATEN.sum.default, add(_ATEN.ne.Scalar, target, given["ignore_index"]))
            found = add(_ATEN.div.Tensor, found, count)
        if out.dtype != torch.float32:
            found = add(_ATEN._to_copy.default, found, dtype=out.dtype)
    node.replace_all_uses_with(found)


def _spell_cosine(graph: Any, node: Any) -> None:
    """x1 . x2 / (max(|x1|, eps) * max(|x2|, eps))."""
    given = arguments(node)
    first, second, dim = given["x1"], given["x2"], [given["dim"]]
    one, other = value(first), value(second)
    if not is_dense(first) or not is_dense(second) or one is None or other is None:
        return
    if one.shape != other.shape or one.dtype != other.dtype:
        return
    add = Adding(graph, node)

    def length(x: Any) -> Any:
        squares = add(_ATEN.sum.dim_IntList, add(_ATEN.mul.Tensor, x, x), dim)
        return add(_ATEN.clamp_min.default, add(_ATEN.sqrt.default, squares), given["eps"])

    dot = add(_ATEN.sum.dim_IntList, add(_ATEN.mul.Tensor, first, second), dim)
    put(graph, node, _ATEN.div.Tensor, dot, add(_ATEN.mul.Tensor, length(first), length(second)))
