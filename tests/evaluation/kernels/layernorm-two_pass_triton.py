"""LayerNorm in Triton: mean, centred variance, outputs, in loops over a row."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 512


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        total += tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        centred = tl.where(inside, x - mean, 0.0)
        squares += centred * centred
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + start + columns, mask=inside, other=0.0)
        bias = tl.load(bias_ptr + start + columns, mask=inside, other=0.0)
        y = (x - mean) * scale * weight + bias
        tl.store(y_ptr + row + start + columns, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        grid = (x.numel() // n,)
        layernorm_kernel[grid](x, self.weight, self.bias, y, n, self.eps, BLOCK=BLOCK)
        return y
