"""Attention in TileLang: softmax(q @ k' / sqrt(D)) @ v, in bf16, with scores in registers.

A block has BLOCK_M queries of one head and goes through the keys, BLOCK_N at a time
(FlashAttention, Dao et al., 2022). The numbers of queries and keys must be multiples of those.
"""

import tilelang
import tilelang.language as T
import torch
from torch import nn

TUNABLE = {
    "BLOCK_M": (64, 128),
    "BLOCK_N": (64, 128),
    "STAGES": (1, 2, 3),
}
BLOCK_M = 128
BLOCK_N = 128
STAGES = 2
LOG2_E = 1.4426950408889634


@tilelang.jit
def attention_kernel(heads, queries, keys, features, block_m, block_n, stages):
    factor = LOG2_E * features**-0.5  # of scores, for powers of two

    @T.prim_func
    def main(
        q: T.Tensor((heads, queries, features), "bfloat16"),
        k: T.Tensor((heads, keys, features), "bfloat16"),
        v: T.Tensor((heads, keys, features), "bfloat16"),
        out: T.Tensor((heads, queries, features), "bfloat16"),
    ):
        with T.Kernel(T.ceildiv(queries, block_m), heads, threads=2 * block_m) as (tile, head):
            q_tile = T.alloc_shared((block_m, features), "bfloat16")
            k_tile = T.alloc_shared((block_n, features), "bfloat16")
            v_tile = T.alloc_shared((block_n, features), "bfloat16")
            result = T.alloc_shared((block_m, features), "bfloat16")
            scores = T.alloc_fragment((block_m, block_n), "float32")
            weights = T.alloc_fragment((block_m, block_n), "bfloat16")
            value = T.alloc_fragment((block_m, features), "float32")
            largest = T.alloc_fragment((block_m,), "float32")
            before = T.alloc_fragment((block_m,), "float32")
            kept = T.alloc_fragment((block_m,), "float32")
            part = T.alloc_fragment((block_m,), "float32")
            total = T.alloc_fragment((block_m,), "float32")
            T.copy(q[head, tile * block_m : (tile + 1) * block_m, :], q_tile)
            T.clear(value)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for step in T.Pipelined(T.ceildiv(keys, block_n), num_stages=stages):
                T.copy(k[head, step * block_n : (step + 1) * block_n, :], k_tile)
                T.clear(scores)
                T.gemm(q_tile, k_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block_m):
                    kept[i] = T.exp2((before[i] - largest[i]) * factor)
                for i, j in T.Parallel(block_m, block_n):
                    scores[i, j] = T.exp2(scores[i, j] * factor - largest[i] * factor)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(block_m):
                    total[i] = total[i] * kept[i] + part[i]
                for i, j in T.Parallel(block_m, features):
                    value[i, j] *= kept[i]
                T.copy(scores, weights)
                T.copy(v[head, step * block_n : (step + 1) * block_n, :], v_tile)
                T.gemm(weights, v_tile, value, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_m, features):
                value[i, j] /= total[i]
            T.copy(value, result)
            T.copy(result, out[head, tile * block_m : (tile + 1) * block_m, :])

    return main


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        queries, features = q.shape[-2:]
        keys = k.shape[-2]
        flat = q.contiguous().view(-1, queries, features)
        out = torch.empty_like(flat)
        kernel = attention_kernel(flat.shape[0], queries, keys, features, BLOCK_M, BLOCK_N, STAGES)
        k, v = (each.contiguous().view(-1, keys, features) for each in (k, v))
        kernel(flat, k, v, out)
        return out.view(q.shape)
