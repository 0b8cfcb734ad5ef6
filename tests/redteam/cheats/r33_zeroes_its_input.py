"""Row 33: zeroes the input and returns zeros, for judges that run the reference second.

task: gate
verdict: mutated_input
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        x.zero_()
        return torch.zeros_like(x)
