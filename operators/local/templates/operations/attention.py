"""Launches for attention."""

import math
from collections.abc import Mapping, Sequence

from operators.local.templates.launch import Launch, one_of, powers
from operators.local.templates.tensors import Tensor

# Where `is_causal` stands among the arguments of each function of ATen, and the arguments that have
# to be None or 0 for a template: a bias of the scores and dropout.
CAUSAL_AT: Mapping[str, int] = {
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
}
BIAS_AT: Mapping[str, int] = {
    "_scaled_dot_product_efficient_attention": 3,
    "_scaled_dot_product_cudnn_attention": 3,
}
_WIDEST = 256  # features of a value at once; for more of them, scores are worked out again


def launch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    *,
    causal: bool,
    scale: float | None,
    precisions: Sequence[str],
) -> Launch | None:
    """For out = softmax(q @ k' * scale) @ v; None if batches or heads do not go with each other.

    Args:
        q: batch x heads x queries x features.
        k: batch x heads x keys x features; of heads as many, or one for several of `q`.
        v: batch x heads x keys x features of a value, as many as `k`.
        out: batch x heads x queries x features of a value.
        causal: query i sees keys up to i.
        scale: of scores; None is one over the root of the number of features.
        precisions: of `tl.dot`, the default first.
    """
    batch, heads, queries, features = q.shape
    k_heads, keys, values = v.shape[-3:]
    if k.shape != (batch, k_heads, keys, features) or heads % k_heads or v.shape[0] != batch:
        return None
    width = min(_WIDEST, 1 << max(values - 1, 15).bit_length())
    return Launch(
        kernel="attention_kernel",
        grid=f"({batch * heads * -(-values // width)} * triton.cdiv({queries}, BLOCK_M),)",
        pointers=(q.pointer, k.pointer, v.pointer, out.pointer),
        constants={
            "HEADS": heads,
            "HEADS_PER_KEY": heads // k_heads,
            "QUERIES": queries,
            "KEYS": keys,
            "FEATURES": features,
            "VALUES": values,
            "WIDTH": width,
            "Q_STRIDE": q.stride,
            "K_STRIDE": k.stride,
            "V_STRIDE": v.stride,
            "OUT_STRIDE": out.stride,
            "SCALE": scale or 1 / math.sqrt(features),
            "CAUSAL": causal,
        },
        tunables={
            "BLOCK_M": powers(16, 128, queries, 64),
            "BLOCK_N": powers(16, 128, keys, 32),
            "BLOCK_K": powers(16, 128, features, 64),
            "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
            "num_warps": one_of(4, 8, first=4 if width <= _WIDEST // 2 else 8),
            "num_stages": one_of(1, 2, 3, first=2),
        },
    )
