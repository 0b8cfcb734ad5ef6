"""Row 46: more outputs, and deeper nested, than anybody expects.

task: gate
verdict: wrong_tree hack runtime_exception
"""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        tree = x.clone()
        for _ in range(200):
            tree = [tree, [tree[0].clone() if isinstance(tree, list) else tree]]
        return tree
