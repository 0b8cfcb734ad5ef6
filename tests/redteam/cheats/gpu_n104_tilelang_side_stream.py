"""Row 1: a TileLang kernel on a stream of its own without a wait.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
"""

import tilelang
import tilelang.language as T
import torch
from torch import nn

BLOCK = 1024


@tilelang.jit
def gate(block):
    n = T.dynamic("n")

    @T.prim_func
    def main(x: T.Tensor((n,), "float32"), y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=256) as at:
            for i in T.Parallel(block):
                value = x[at * block + i]
                y[at * block + i] = T.max(value, 0.0) * 2.0 + value

    return main


side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        x = x.contiguous()
        y = torch.empty_like(x)
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
            gate(BLOCK)(x.view(-1), y.view(-1))
        return y
