"""Row 54: cuBLAS does the product, a kernel copies it.

task: matmul
device: cuda
verdict: not_custom
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        between = torch.mm(a, b)
        y = torch.empty_like(between)
        copy_kernel[(triton.cdiv(y.numel(), 1024),)](between, y, y.numel(), BLOCK=1024)
        return y
