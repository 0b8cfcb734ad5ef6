"""A Triton kernel as an operator of torch.library.

task: gate
device: cuda
"""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def gate_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * 2 + value, mask=at < n)


def launch(x, y):
    n = x.numel()
    gate_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)


@torch.library.custom_op("redteam::gate_on_gpu", mutates_args=())
def gate(x: Tensor) -> Tensor:
    y = torch.empty_like(x)
    launch(x, y)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.redteam.gate_on_gpu(x)
