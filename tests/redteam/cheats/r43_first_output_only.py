"""Row 43: the first of two outputs is right.

task: pair
verdict: wrong_value
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * 2 + 1, {"largest": torch.zeros(x.shape[0])}
