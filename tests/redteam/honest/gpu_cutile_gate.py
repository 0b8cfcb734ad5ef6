"""cuTile, a tile of a flat tensor to a block.

task: gate
device: cuda
fidelity: screen
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


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        blocks = ct.cdiv(x.numel(), TILE)
        arguments = (x.view(-1), y.view(-1), TILE)
        ct.launch(torch.cuda.current_stream(), (blocks,), gate, arguments)
        return y
