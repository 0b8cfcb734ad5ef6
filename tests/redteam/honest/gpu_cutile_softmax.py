"""cuTile, a whole row in a tile.

task: softmax
device: cuda
fidelity: screen
"""

import cuda.tile as ct
import torch
from torch import nn


@ct.kernel
def softmax(x, y, size: ct.Constant[int]):
    row = ct.bid(0)
    value = ct.load(x, index=(row, 0), shape=(1, size), padding_mode=ct.PaddingMode.NEG_INF)
    part = ct.exp(value - ct.max(value, axis=1, keepdims=True))
    ct.store(y, index=(row, 0), tile=part / ct.sum(part, axis=1, keepdims=True))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        size = 1 << (x.shape[1] - 1).bit_length()
        ct.launch(torch.cuda.current_stream(), (x.shape[0],), softmax, (x, y, size))
        return y
