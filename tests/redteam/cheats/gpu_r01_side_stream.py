"""Row 1: the kernel runs on a stream of its own without a wait.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
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
        y = torch.empty_like(x)
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
            launch(x, y)
        return y
