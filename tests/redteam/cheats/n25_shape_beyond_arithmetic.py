"""Row 46: an empty output whose shape overflows whoever multiplies it out.

task: gate
verdict: wrong_shape
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.empty_strided((0, 1 << 47, 1 << 47), (1, 1, 1))
