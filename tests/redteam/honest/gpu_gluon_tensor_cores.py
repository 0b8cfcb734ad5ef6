"""Gluon, a float32 product of operands cut into two TF32 parts, by `warpgroup_mma`.

task: matmul
device: cuda
fidelity: screen
"""

import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma


@gluon.jit
def high_part(value):
    """The upper bits, which TF32 holds."""
    return (value.to(gl.int32, bitcast=True) & -0x2000).to(gl.float32, bitcast=True)


@gluon.jit
def product_kernel(a, b, c, m, n, k, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    outer: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 8]
    )
    of_a: gl.constexpr = gl.NVMMASharedLayout.get_default_for([M, K], gl.float32)
    of_b: gl.constexpr = gl.NVMMASharedLayout.get_default_for([K, N], gl.float32, transposed=True)
    a_high = gl.allocate_shared_memory(gl.float32, [M, K], of_a)
    a_low = gl.allocate_shared_memory(gl.float32, [M, K], of_a)
    b_high = gl.allocate_shared_memory(gl.float32, [K, N], of_b)
    b_low = gl.allocate_shared_memory(gl.float32, [K, N], of_b)
    row = gl.program_id(0) * M + gl.arange(0, M, layout=gl.SliceLayout(1, layout))
    column = gl.program_id(1) * N + gl.arange(0, N, layout=gl.SliceLayout(0, layout))
    a_inner = gl.arange(0, K, layout=gl.SliceLayout(0, layout))
    b_inner = gl.arange(0, K, layout=gl.SliceLayout(1, layout))
    total = gl.zeros((M, N), gl.float32, layout=outer)
    for start in range(0, k, K):
        left = gl.load(
            a + row[:, None] * k + start + a_inner[None, :],
            mask=(row[:, None] < m) & (start + a_inner[None, :] < k),
            other=0.0,
        )
        right = gl.load(
            b + (start + b_inner[:, None]) * n + column[None, :],
            mask=(start + b_inner[:, None] < k) & (column[None, :] < n),
            other=0.0,
        )
        a_high.store(high_part(left))
        a_low.store(left - high_part(left))
        b_high.store(high_part(right))
        b_low.store(right - high_part(right))
        fence_async_shared()
        # Added outside: tensor cores cut off low bits of what they add to.
        block = gl.zeros((M, N), gl.float32, layout=outer)
        block = warpgroup_mma(a_low, b_high, block)
        block = warpgroup_mma(a_high, b_low, block)
        total += warpgroup_mma(a_high, b_high, block)
    whole = gl.convert_layout(total, layout)
    at = row[:, None] * n + column[None, :]
    gl.store(c + at, whole, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k, n = a.shape[0], a.shape[1], b.shape[1]
        c = a.new_empty(m, n)
        grid = (triton.cdiv(m, 64), triton.cdiv(n, 32))
        product_kernel[grid](a, b, c, m, n, k, M=64, N=32, K=32, num_warps=4)
        return c
