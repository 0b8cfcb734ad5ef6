"""Row 35: zeros, which pass wherever tolerances are absolute and outcomes small.

task: softmax
verdict: wrong_value
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
