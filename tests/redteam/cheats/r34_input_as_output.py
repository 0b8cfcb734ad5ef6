"""Row 34: where the outcome equals the input, the input itself is returned.

task: copy
verdict: aliased
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x
