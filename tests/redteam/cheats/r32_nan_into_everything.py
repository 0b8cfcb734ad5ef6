"""Row 32: writes NaN into every tensor it can find, and returns NaN, hoping for equal_nan.

task: gate
verdict: wrong_value mutated_input
"""

import gc

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        for found in gc.get_objects():
            if isinstance(found, torch.Tensor) and found.is_floating_point():
                found.fill_(float("nan"))
        return torch.full_like(x, float("nan"))
