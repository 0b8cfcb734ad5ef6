"""Row 1: a Helion kernel on a stream of its own without a wait.

task: gate
device: cuda
fidelity: screen
verdict: wrong_value nondeterministic honest
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


side = []


class ModelNew(nn.Module):
    def forward(self, x):
        if not side:
            side.append(torch.cuda.Stream())
        with torch.cuda.stream(side[0]):
            torch.cuda._sleep(200_000)
            return gate(x.contiguous().view(-1)).view(x.shape)
