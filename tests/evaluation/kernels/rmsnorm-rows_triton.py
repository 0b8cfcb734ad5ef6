"""RMSNorm in Triton with a block of whole rows in one program."""

import torch
import triton
import triton.language as tl
from torch import nn

ROWS = 4


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, y_ptr, rows, n, eps, ROWS: tl.constexpr,
                   BLOCK: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = (row[:, None] < rows) & (columns[None, :] < n)
    places = row[:, None] * n + columns[None, :]
    x = tl.load(x_ptr + places, mask=inside, other=0.0)
    mean_square = tl.sum(x * x, axis=1) / n
    weight = tl.load(weight_ptr + columns, mask=columns < n, other=0.0)
    y = x * tl.rsqrt(mean_square + eps)[:, None] * weight[None, :]
    tl.store(y_ptr + places, y, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, n = x.shape
        y = torch.empty_like(x)
        rmsnorm_kernel[(triton.cdiv(rows, ROWS),)](
            x, self.weight, y, rows, n, self.eps, ROWS=ROWS, BLOCK=triton.next_power_of_2(n)
        )
        return y
