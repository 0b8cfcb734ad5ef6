"""Row 63: writes to an address that is none, to leave the device broken for others.

task: gate
device: cuda
verdict: illegal_access runtime_exception
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def wild_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + (1 << 45) + tl.arange(0, BLOCK), 1.0)


class ModelNew(nn.Module):
    def forward(self, x):
        wild_kernel[(1,)](x.clone(), BLOCK=16)
        torch.cuda.synchronize()
        return torch.zeros_like(x)
