"""Row 53: torch.compile writes the kernels.

task: gate
verdict: not_custom runtime_exception timeout oom
"""

import torch
from torch import nn


@torch.compile
def work(x):
    return torch.relu(x) * 2 + x


class ModelNew(nn.Module):
    def forward(self, x):
        return work(x)
