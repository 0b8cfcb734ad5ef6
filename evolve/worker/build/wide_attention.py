"""Attention whose heads are too wide for one kernel, taken apart into products of matrices.

A fused kernel keeps all features of the values of a block of queries at hand. If they are more
than WIDEST, a block is small or its scores are worked out again for each part of the features
(KernelBench 1/97, of 1024: 0.13 times as fast as eager on an H200), so scores are stored instead.
"""

import math
from typing import Any

import torch

from evolve.worker.build.decompositions.nodes import Adding, arguments, is_call, value

WIDEST = 256  # features a head, as in PyTorch's own fused kernels for a Hopper GPU
_MAX_SCORES = 2**30  # scores, of 4 bytes each; a fused kernel stores none
_ATEN = torch.ops.aten


def take_apart(graph: Any) -> None:
    """Replace attention of wide heads in an exported float32 graph; no sum is lost.

    Attention with a mask, dropout, or fewer heads of keys than of queries is unchanged.
    """
    for node in list(graph.nodes):
        if is_call(node, "scaled_dot_product_attention.default") and _is_wide(node):
            node.replace_all_uses_with(_outcome(Adding(graph, node), arguments(node)))
            graph.erase_node(node)


def _is_wide(node: Any) -> bool:
    given = arguments(node)
    query, key, values = (value(given[name]) for name in ("query", "key", "value"))
    if query is None or key is None or values is None or values.dtype != torch.float32:
        return False
    if values.shape[-1] <= WIDEST or query.numel() // query.shape[-1] * key.shape[-2] > _MAX_SCORES:
        return False
    others = "attn_mask", "dropout_p", "is_causal", "enable_gqa"
    return not any(given.get(name) for name in others)


def _outcome(add: Adding, given: dict[str, Any]) -> Any:
    query, key = given["query"], given["key"]
    scale = given["scale"]
    if scale is None:
        scale = 1 / math.sqrt(query.meta["val"].shape[-1])
    scores = add(_ATEN.matmul.default, query, add(_ATEN.transpose.int, key, -2, -1))
    scores = add(_ATEN.mul.Tensor, scores, scale)
    return add(_ATEN.matmul.default, add(_ATEN.softmax.int, scores, -1), given["value"])
