"""Row 14: while a graph is captured, only the first call launches anything.

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


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        if torch.cuda.is_current_stream_capturing():
            self.captured = getattr(self, "captured", 0) + 1
            if self.captured > 1:
                return y
        launch(x, y)
        return y
