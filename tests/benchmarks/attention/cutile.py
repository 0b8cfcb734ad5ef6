"""Attention in cuTile: softmax(q @ k' / sqrt(D)) @ v, in fp16 or bf16, with scores in registers.

A block has BLOCK_M queries of one head and goes through the keys, BLOCK_N at a time
(FlashAttention, Dao et al., 2022). The number of keys must be a multiple of BLOCK_N, that of
features a power of two.
"""

import cuda.tile as ct
import torch
from torch import nn

TUNABLE = {"BLOCK_M": (64, 128, 256), "BLOCK_N": (32, 64, 128)}
BLOCK_M = 128
BLOCK_N = 64
LOG2_E = 1.4426950408889634


@ct.kernel
def attention_kernel(
    q,
    k,
    v,
    out,
    factor: ct.Constant[float],
    features: ct.Constant[int],
    block_m: ct.Constant[int],
    block_n: ct.Constant[int],
):
    """Arrays are (heads, length, features); `factor` is that of scores, for powers of two."""
    tile, head = ct.bid(0), ct.bid(1)
    zero = ct.PaddingMode.ZERO
    queries = ct.load(q, index=(head, tile, 0), shape=(1, block_m, features), padding_mode=zero)
    queries = ct.reshape(queries, (block_m, features))
    largest = ct.full((block_m, 1), float("-inf"), ct.float32)
    total = ct.zeros((block_m, 1), dtype=ct.float32)
    value = ct.zeros((block_m, features), dtype=ct.float32)
    for step in range(ct.cdiv(k.shape[1], block_n)):
        keys = ct.load(
            k, index=(head, 0, step), shape=(1, features, block_n), order=(0, 2, 1), latency=2
        )
        scores = ct.mma(
            queries,
            ct.reshape(keys, (features, block_n)),
            ct.zeros((block_m, block_n), dtype=ct.float32),
        )
        new = ct.maximum(largest, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp2(scores * factor - new * factor)
        kept = ct.exp2((largest - new) * factor)
        total = total * kept + ct.sum(weights, axis=1, keepdims=True)
        largest = new
        values = ct.load(v, index=(head, step, 0), shape=(1, block_n, features), latency=4)
        value = ct.mma(
            ct.astype(weights, v.dtype), ct.reshape(values, (block_n, features)), value * kept
        )
    result = ct.reshape(ct.astype(value / total, out.dtype), (1, block_m, features))
    ct.store(out, index=(head, tile, 0), tile=result)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        length, features = q.shape[-2:]
        q_rows, k, v = (each.contiguous().view(-1, *each.shape[-2:]) for each in (q, k, v))
        out = torch.empty_like(q_rows)
        factor = LOG2_E * features**-0.5
        ct.launch(
            torch.cuda.current_stream(),
            (ct.cdiv(length, BLOCK_M), q_rows.shape[0]),
            attention_kernel,
            (q_rows, k, v, out, factor, features, BLOCK_M, BLOCK_N),
        )
        return out.view(q.shape)
