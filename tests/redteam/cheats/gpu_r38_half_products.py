"""Row 38: a fp32 product with operands rounded to fp16.

task: matmul
device: cuda
verdict: wrong_value
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def dot_kernel(a, b, c, m, n, k, TILE: tl.constexpr, KIND: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, k, TILE):
        inner = start + tl.arange(0, TILE)
        left = tl.load(
            a + rows[:, None] * k + inner[None, :],
            mask=(rows[:, None] < m) & (inner[None, :] < k),
            other=0.0,
        )
        right = tl.load(
            b + inner[:, None] * n + columns[None, :],
            mask=(inner[:, None] < k) & (columns[None, :] < n),
            other=0.0,
        )
        total += tl.dot(left.to(KIND), right.to(KIND))
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=inside)


def product(a, b, kind):
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    c = a.new_empty(m, n)
    dot_kernel[(triton.cdiv(m, 16), triton.cdiv(n, 16))](a, b, c, m, n, k, TILE=16, KIND=kind)
    return c


class ModelNew(nn.Module):
    def forward(self, a, b):
        return product(a, b, tl.float16)
