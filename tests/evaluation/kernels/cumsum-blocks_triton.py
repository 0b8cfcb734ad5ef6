"""Cumulative sum in Triton: one program per row, a block at a time, a carry between blocks."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 256


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    carry = tl.zeros((1,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        y = tl.cumsum(x, axis=0) + carry
        tl.store(y_ptr + row + start + columns, y, mask=inside)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        cumsum_kernel[(x.numel() // n,)](x, y, n, BLOCK=BLOCK)
        return y
