"""Row 52: a Triton kernel with the name of one of torch's, beside torch's own.

task: gate
device: cuda
verdict: not_custom
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def vectorized_elementwise_kernel(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0.0)


class ModelNew(nn.Module):
    def forward(self, x):
        vectorized_elementwise_kernel[(1,)](torch.empty(16, device=x.device), BLOCK=16)
        return torch.relu(x) * 2 + x
