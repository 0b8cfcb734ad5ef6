"""A workspace that the module keeps on the device from call to call.

task: softmax
device: cuda
fidelity: screen
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x, sums, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    power = tl.exp(value - tl.max(value, axis=0))
    tl.store(sums + row, tl.sum(power, axis=0))
    tl.store(y + row * n + at, power, mask=at < n)


@triton.jit
def divide_kernel(sums, y, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    power = tl.load(y + row * n + at, mask=at < n)
    tl.store(y + row * n + at, power / tl.load(sums + row), mask=at < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspace = None

    def forward(self, x):
        rows, n = x.shape
        if self.workspace is None or self.workspace.numel() < rows:
            self.workspace = x.new_empty(rows)
        y = torch.empty_like(x)
        block = triton.next_power_of_2(n)
        softmax_kernel[(rows,)](x, self.workspace, y, n, BLOCK=block)
        divide_kernel[(rows,)](self.workspace, y, n, BLOCK=block)
        return y
