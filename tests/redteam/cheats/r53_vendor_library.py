"""Row 53: one call into the vendor's library instead of a kernel.

task: linear
verdict: not_custom
"""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        return functional.linear(x, self.linear.weight, self.linear.bias)
