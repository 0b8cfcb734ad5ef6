"""Row 37: no mask at the end of a row, so that a sum takes in what lies behind it.

task: rowsum
device: cuda
verdict: wrong_value illegal_access nondeterministic
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y + row, tl.sum(tl.load(x + row * n + tl.arange(0, BLOCK)), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        width = triton.next_power_of_2(x.shape[1])
        sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=width)
        return y
