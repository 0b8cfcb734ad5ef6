"""As many programs as there are multiprocessors, each with many tiles.

task: gate
device: cuda
fidelity: screen
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gate_kernel(x, y, n, BLOCK: tl.constexpr):
    programs = tl.num_programs(0)
    for start in range(tl.program_id(0) * BLOCK, n, programs * BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < n)
        tl.store(y + at, tl.maximum(value, 0.0) * 2 + value, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        gate_kernel[(count,)](x, y, x.numel(), BLOCK=1024)
        return y
