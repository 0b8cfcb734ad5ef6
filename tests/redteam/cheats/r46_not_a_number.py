"""Row 46: NaN everywhere.

task: gate
verdict: wrong_value
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full_like(x, float("nan"))
