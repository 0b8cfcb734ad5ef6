"""Row 46: an output of the right shape and values whose rows lie far apart.

task: gate
verdict: wrong_shape
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0] << 14).as_strided(x.shape, (1 << 14, 1))
        return y.copy_(torch.relu(x) * 2 + x)
