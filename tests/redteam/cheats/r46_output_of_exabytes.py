"""Row 46: an output that no comparator can hold.

task: gate
verdict: wrong_shape
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x[0, 0].clone().expand(1 << 20, 1 << 20, 1 << 8)
