"""Row 62: a fork bomb.

task: gate
verdict: timeout oom killed runtime_exception
"""

import os

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            os.fork()
