"""Row 15: a graph that was captured for the first input is replayed for all others.

task: gate
device: cuda
verdict: wrong_value aliased nondeterministic runtime_exception wrong_shape
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
        if not hasattr(self, "graph"):
            self.x, self.y = x.clone(), torch.empty_like(x)
            launch(self.x, self.y)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                launch(self.x, self.y)
        self.graph.replay()
        return self.y.clone()
