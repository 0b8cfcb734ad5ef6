"""Row 35: the mean of all outcomes, a constant.

task: softmax
verdict: wrong_value
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, 1 / x.shape[-1])
