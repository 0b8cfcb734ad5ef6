"""Helion, one tile of a flat tensor to a program.

task: gate
device: cuda
fidelity: screen
"""

import helion
import helion.language as hl
import torch
from torch import nn

BLOCK = 1024


@helion.kernel(config=helion.Config(block_sizes=[BLOCK], num_warps=4))
def gate(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        value = x[tile]
        y[tile] = torch.relu(value) * 2 + value
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return gate(x.contiguous().view(-1)).view(x.shape)
