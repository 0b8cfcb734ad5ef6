"""LayerNorm in Triton with moments per lane that are merged after the loop (Chan et al., 1979)."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 128


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    count = tl.zeros((BLOCK,), tl.float32)
    mean = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        count = tl.where(inside, count + 1.0, count)
        before = x - mean
        mean = tl.where(inside, mean + before / tl.maximum(count, 1.0), mean)
        squares = tl.where(inside, squares + before * (x - mean), squares)
    row_mean = tl.sum(mean * count, axis=0) / n
    apart = mean - row_mean
    variance = tl.sum(squares + count * apart * apart, axis=0) / n
    scale = 1.0 / tl.sqrt(variance + eps)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0)
        weight = tl.load(weight_ptr + start + columns, mask=inside, other=0.0)
        bias = tl.load(bias_ptr + start + columns, mask=inside, other=0.0)
        y = (x - row_mean) * scale * weight + bias
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
