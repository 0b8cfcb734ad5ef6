"""Row sums in Triton, rows cut into parts whose sums are added up in memory."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, n = x.shape
        y = x.new_zeros(rows)
        row_sum_kernel[(rows, triton.cdiv(n, BLOCK))](x, y, n, BLOCK=BLOCK)
        return y
