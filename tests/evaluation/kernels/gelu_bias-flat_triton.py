"""Bias and GELU in Triton over the flattened matrix; the column comes from the offset."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024


@triton.jit
def gelu_bias_kernel(x_ptr, bias_ptr, y_ptr, n, size, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < size
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0)
    v = x + tl.load(bias_ptr + offsets % n, mask=inside, other=0.0)
    z = 0.7978845608 * (v + 0.044715 * v * v * v)
    y = v / (1.0 + tl.exp(-2.0 * z))
    tl.store(y_ptr + offsets, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        gelu_bias_kernel[grid](x, self.bias, y, x.shape[-1], x.numel(), BLOCK=BLOCK)
        return y
