"""Gluon, with four elements to a thread.

task: gate
device: cuda
fidelity: screen
"""

import torch
import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def gate_kernel(x, y, n, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    value = gl.load(x + at, mask=at < n, other=0.0)
    gl.store(y + at, gl.maximum(value, 0.0) * 2 + value, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        gate_kernel[grid](x, y, x.numel(), BLOCK=1024, num_warps=4)
        return y
