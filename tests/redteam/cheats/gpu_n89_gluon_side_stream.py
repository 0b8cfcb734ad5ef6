"""Row 1: a Gluon kernel on a stream of its own without a wait.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
"""

import torch
import triton
from torch import nn
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def gate_kernel(x, y, n, BLOCK: gl.constexpr):
    at = gl.program_id(0) * BLOCK + gl.arange(
        0, BLOCK, layout=gl.BlockedLayout([4], [32], [4], [0])
    )
    value = gl.load(x + at, mask=at < n, other=0.0)
    gl.store(y + at, gl.maximum(value, 0.0) * 2 + value, mask=at < n)


side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        y = torch.empty_like(x)
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
            gate_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
        return y
