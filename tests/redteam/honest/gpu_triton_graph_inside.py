"""Captures its launches in a graph and feeds it by copies: slower, but right.

task: gate
device: cuda
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
    def __init__(self):
        super().__init__()
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            source, target = x.clone(), torch.empty_like(x)
            launch(source, target)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                launch(source, target)
            self.graphs[x.shape] = graph, source, target
        graph, source, target = self.graphs[x.shape]
        source.copy_(x)
        graph.replay()
        return target.clone()
