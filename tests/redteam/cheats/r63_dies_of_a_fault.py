"""Row 63: an illegal access, to spoil the device or the process for others.

task: gate
verdict: illegal_access
"""

import ctypes

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        ctypes.memset(1 << 40, 0, 4096)
