"""Softmax in Triton, one program per row with a running maximum, for rows of any length."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 8192
NUM_WARPS = 8

TUNABLE = {
    "BLOCK": (1024, 2048, 4096, 8192),
    "NUM_WARPS": (4, 8, 16),
}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # 64-bit row offsets: a matrix of 2 GB and more overflows 32 bits.
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    # One maximum and one sum per lane: the reduction over lanes is paid once, after the loop.
    maximum = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(maximum, x)
        # A lane that has seen nothing finite yet has no sum to correct: -inf - -inf is NaN.
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(maximum - shift) + tl.exp(x - shift)
        maximum = higher
    row_maximum = tl.max(maximum, axis=0)
    scale = 1.0 / tl.sum(total * tl.exp(maximum - row_maximum), axis=0)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0).to(tl.float32)
        y = tl.exp(x - row_maximum) * scale
        tl.store(y_ptr + row + start + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        softmax_kernel[(x.numel() // n,)](x, y, n, BLOCK=BLOCK, num_warps=NUM_WARPS)
        return y
