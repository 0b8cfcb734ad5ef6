"""Row 2: a host thread launches the kernel after forward has returned.

task: gate
device: cuda
verdict: wrong_value nondeterministic
"""

import threading

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


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.zeros_like(x)
        threading.Timer(0.02, launch, (x, y)).start()
        return y
