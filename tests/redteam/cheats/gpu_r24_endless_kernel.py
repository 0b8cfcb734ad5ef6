"""Row 24: a kernel on a side stream that runs on while others are timed.

task: gate
device: cuda
fidelity: screen
verdict: timing_unbounded timeout wrong_value hack
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gate_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, tl.maximum(value, 0.0) * 2 + value, mask=at < n)


def launch(x, y):
    n = x.numel()
    gate_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)


side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(20_000_000_000)
        y = torch.empty_like(x)
        launch(x, y)
        return y
