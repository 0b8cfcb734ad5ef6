"""Row 1: a cuTile kernel on a stream of its own without a wait.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
"""

import cuda.tile as ct
import torch
from torch import nn

TILE = 1024


@ct.kernel
def gate(x, y, size: ct.Constant[int]):
    at = ct.bid(0)
    value = ct.load(x, index=(at,), shape=(size,))
    ct.store(y, index=(at,), tile=ct.maximum(value, 0.0) * 2.0 + value)


side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = ct.cdiv(x.numel(), TILE)
        arguments = (x.view(-1), y.view(-1), TILE)
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
        ct.launch(side[0], (blocks,), gate, arguments)
        return y
