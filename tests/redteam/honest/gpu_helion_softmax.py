"""Helion, whole rows in a tile.

task: softmax
device: cuda
fidelity: screen
"""

import helion
import helion.language as hl
import torch
from torch import nn


@helion.kernel(config=helion.Config(block_sizes=[2], num_warps=4))
def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile, :]
        part = torch.exp(value - torch.amax(value, dim=1, keepdim=True))
        y[tile, :] = part / torch.sum(part, dim=1, keepdim=True)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return softmax(x.contiguous())
