"""Running sums and products in an exported graph: forward, reverse, exclusive, of masked values."""

from typing import Any

import torch

from evolve.worker.build.decompositions.nodes import (
    MIN_ROWS,
    arguments,
    is_call,
    is_dense,
    only_user,
    put,
    rows,
    value,
)


def keep_scans(graph: Any) -> None:
    """Replace each that is recognised."""
    for node in list(graph.nodes):
        if is_call(node, "cumsum.default", "cumprod.default"):
            _keep(graph, node)


def _keep(graph: Any, node: Any) -> None:
    given = arguments(node)
    tensor = value(node)
    if given["dtype"] is not None or tensor is None or not tensor.dim():
        return
    source, dim = given["self"], given["dim"] % tensor.dim()
    is_product = is_call(node, "cumprod.default")
    end, reverse, exclusive = node, False, False
    if (flipped := _reversed(node, source, dim)) is not None:
        source, end, reverse = *flipped, True
    elif not is_product and (shifted := _shifted(node, source, dim)) is not None:
        source, end, exclusive = *shifted, True
    x, mask = _masked(source)
    out, first = value(end), value(x)
    view = rows(out.shape, [dim]) if out is not None else None
    if view is None or first is None or not is_dense(x) or out is None:
        return
    if out.dtype != first.dtype or out.shape != first.shape or view[0] * view[2] < MIN_ROWS:
        return
    operator = torch.ops.evolve.scan.default
    put(graph, end, operator, x, mask, list(view), is_product, reverse, exclusive)


def _reversed(node: Any, source: Any, dim: int) -> tuple[Any, Any] | None:
    """Of flip(scan(flip(x))): x and the last flip."""
    user = only_user(node)
    for flip in (user, source):
        count = len(_shape(node))
        if not is_call(flip, "flip.default") or [d % count for d in flip.args[1]] != [dim]:
            return None
    assert user is not None
    return source.args[0], user


def _shifted(node: Any, source: Any, dim: int) -> tuple[Any, Any] | None:
    """Of cat(zeros, scan(all but the last of x)): x and the concatenation."""
    user = only_user(node)
    if user is None or not is_call(user, "cat.default"):
        return None
    given = arguments(user)
    tensors, shape = given["tensors"], _shape(node)
    if given["dim"] % len(shape) != dim or len(tensors) != 2 or tensors[1] is not node:
        return None
    if not is_call(source, "narrow.default", "slice.Tensor") or not _is_zeros(tensors[0]):
        return None
    taken = arguments(source)
    is_first = taken["dim"] % len(shape) == dim and not taken["start"]
    x = source.args[0]
    is_shorter = _shape(x)[dim] == shape[dim] + 1 and _shape(tensors[0])[dim] == 1
    return (x, user) if is_first and taken.get("step", 1) == 1 and is_shorter else None


def _is_zeros(node: Any) -> bool:
    if is_call(node, "full.default", "full_like.default", "new_full.default"):
        return bool(arguments(node)["fill_value"] == 0)
    return is_call(node, "zeros.default", "zeros_like.default", "new_zeros.default")


def _masked(node: Any) -> tuple[Any, Any]:
    """Of x * mask, a mask of truth values of the same shape: both."""
    if is_call(node, "mul.Tensor"):
        for x, mask in (node.args, node.args[::-1]):
            if is_dense(mask, [torch.bool]) and is_dense(x) and _shape(x) == _shape(mask):
                return x, mask
    return node, None


def _shape(node: Any) -> tuple[int, ...]:
    tensor = value(node)
    return tuple(tensor.shape) if tensor is not None else ()
