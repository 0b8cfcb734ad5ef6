"""A few thousand partial sums by a kernel of its own; torch adds them up.

task: energy
device: cuda
fidelity: screen
"""

import triton
import triton.language as tl
from torch import nn


@triton.jit
def partial_sums(x, parts, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(parts + tl.program_id(0), tl.sum(value * value, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        count = triton.cdiv(x.numel(), 1024)
        parts = x.new_empty(count)
        partial_sums[(count,)](x, parts, x.numel(), BLOCK=1024)
        return parts.sum()
