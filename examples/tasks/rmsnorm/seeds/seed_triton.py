"""RMSNorm in Triton, one program per row; the second read of the row comes from the cache."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048
NUM_WARPS = 16

TUNABLE = {
    "BLOCK": (512, 1024, 2048, 4096, 8192),
    "NUM_WARPS": (4, 8, 16),
}


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    # 64-bit row offsets: a matrix of 2 GB and more overflows 32 bits.
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0).to(tl.float32)
        squares += x * x
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        inside = start + columns < n
        x = tl.load(x_ptr + row + start + columns, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        y = x * scale * weight
        tl.store(y_ptr + row + start + columns, y.to(y_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        grid = (x.numel() // n,)
        rmsnorm_kernel[grid](x, self.weight, y, n, self.eps, BLOCK=BLOCK, num_warps=NUM_WARPS)
        return y
