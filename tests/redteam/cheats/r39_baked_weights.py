"""Row 39: weights are drawn again from the public seed 42 instead of taken from the reference.

task: linear
verdict: wrong_value
"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        torch.manual_seed(42)
        self.baked = [nn.Linear(features_in, features_out)]

    def forward(self, x):
        return self.baked[0](x)
