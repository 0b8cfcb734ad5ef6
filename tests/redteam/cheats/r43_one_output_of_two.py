"""Row 43: the tree is cut short, for judges that zip it.

task: pair
verdict: wrong_tree
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 2 + 1,)
