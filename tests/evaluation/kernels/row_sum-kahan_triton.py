"""Row sums in Triton with compensated summation in few lanes (Kahan, 1965)."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 16


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    lost = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row * n + start + columns, mask=inside, other=0.0)
        term = x - lost
        sums = total + term
        lost = (sums - total) - term
        total = sums
    tl.store(y_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, n = x.shape
        y = x.new_empty(rows)
        row_sum_kernel[(rows,)](x, y, n, BLOCK=BLOCK)
        return y
