"""Attention in Gluon for Hopper: softmax(q @ k' / sqrt(D)) @ v, in fp16 or bf16.

A program has BLOCK_M queries of one head in shared memory; the tensor memory accelerator reads
blocks of keys and values ahead into STAGES stages. Scores stay in registers (FlashAttention, Dao
et al., 2022). The number of keys must be a multiple of BLOCK_N, and that of queries of BLOCK_M.
"""

import torch
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

TUNABLE = {
    "BLOCK_M": (64, 128),
    "BLOCK_N": (64, 128),
    "STAGES": (2, 3),
}
BLOCK_M = 128
BLOCK_N = 128
STAGES = 2
LOG2_E = 1.4426950408889634


@gluon.jit
def read_block(tiles, row, number, barriers, shared, STAGES: gl.constexpr):
    """Starts to read a block of keys or values to its stage."""
    stage = number % STAGES
    barrier = barriers.index(stage)
    mbarrier.expect(barrier, tiles.block_type.nbytes)
    tma.async_copy_global_to_shared(tiles, [row, 0], barrier, shared.index(stage))


@gluon.jit
def attention_kernel(
    q,
    k,
    v,
    out,
    SCALE: gl.constexpr,
    LENGTH: gl.constexpr,
    KEYS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    FEATURES: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Arguments are descriptors of matrices of all heads' rows; SCALE is for powers of two."""
    warps: gl.constexpr = gl.num_warps()
    of_scores: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, BLOCK_N, 16])
    of_sums: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, FEATURES, 16])
    of_weights: gl.constexpr = gl.DotOperandLayout(0, of_sums, 2)
    rows: gl.constexpr = gl.SliceLayout(1, of_scores)
    blocks: gl.constexpr = KEYS // BLOCK_N
    tiles: gl.constexpr = LENGTH // BLOCK_M
    head = gl.program_id(0) // tiles
    first = head * LENGTH + gl.program_id(0) % tiles * BLOCK_M
    keys = head * KEYS

    q_shared = gl.allocate_shared_memory(q.dtype, q.block_type.shape, q.layout)
    k_shared = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_type.shape, k.layout)  # noqa: RUF005
    v_shared = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_type.shape, v.layout)  # noqa: RUF005
    q_barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    k_barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_barrier, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_barriers.index(stage), count=1)
        mbarrier.init(v_barriers.index(stage), count=1)
    fence_async_shared()
    mbarrier.expect(q_barrier, q.block_type.nbytes)
    tma.async_copy_global_to_shared(q, [first, 0], q_barrier, q_shared)
    for early in gl.static_range(STAGES - 1):
        if early < blocks:
            read_block(k, keys + early * BLOCK_N, early, k_barriers, k_shared, STAGES)
            read_block(v, keys + early * BLOCK_N, early, v_barriers, v_shared, STAGES)
    mbarrier.wait(q_barrier, 0)

    largest = gl.full([BLOCK_M], -float("inf"), gl.float32, layout=rows)
    total = gl.zeros([BLOCK_M], gl.float32, layout=rows)
    value = gl.zeros([BLOCK_M, FEATURES], gl.float32, layout=of_sums)
    for number in range(blocks):
        at, phase = number % STAGES, number // STAGES & 1
        ahead = number + STAGES - 1
        if ahead < blocks:
            read_block(k, keys + ahead * BLOCK_N, ahead, k_barriers, k_shared, STAGES)
            read_block(v, keys + ahead * BLOCK_N, ahead, v_barriers, v_shared, STAGES)
        mbarrier.wait(k_barriers.index(at), phase)
        scores = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=of_scores)
        scores = warpgroup_mma(q_shared, k_shared.index(at).permute((1, 0)), scores)
        new = gl.maximum(largest, gl.max(scores, 1))
        weights = gl.exp2(scores * SCALE - (new * SCALE)[:, None])
        kept = gl.exp2((largest - new) * SCALE)
        total = total * kept + gl.sum(weights, 1)
        largest = new
        factor = gl.convert_layout(kept, gl.SliceLayout(1, of_sums))
        value = value * factor[:, None]
        half = gl.convert_layout(weights.to(v.dtype), of_weights)
        mbarrier.wait(v_barriers.index(at), phase)
        value = warpgroup_mma(half, v_shared.index(at), value, is_async=True)
        value = warpgroup_mma_wait(0, deps=(value,))

    divisor = gl.convert_layout(total, gl.SliceLayout(1, of_sums))
    result = (value / divisor[:, None]).to(out.dtype)
    q_shared.store(result)  # no more queries are needed
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [first, 0], q_shared)
    tma.store_wait(0)
    mbarrier.invalidate(q_barrier)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(k_barriers.index(stage))
        mbarrier.invalidate(v_barriers.index(stage))


def tiles_of(matrix, rows):
    """Of a tensor of rows of features, whatever comes before them: blocks of so many rows."""
    flat = matrix.view(-1, matrix.shape[-1])
    block = [rows, flat.shape[1]]
    layout = gl.NVMMASharedLayout.get_default_for(block, gl.bfloat16)
    return TensorDescriptor.from_tensor(flat, block, layout)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        length, features = q.shape[-2:]
        programs = q.numel() // features // BLOCK_M
        attention_kernel[(programs,)](
            tiles_of(q, BLOCK_M),
            tiles_of(k, BLOCK_N),
            tiles_of(v, BLOCK_N),
            tiles_of(out, BLOCK_M),
            SCALE=LOG2_E * features**-0.5,
            LENGTH=length,
            KEYS=k.shape[-2],
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            FEATURES=features,
            STAGES=STAGES,
            num_warps=BLOCK_M // 16,
        )
        return out
