"""Row 49: numpy does the work, unseen, and outcomes are wrong once the program is loaded again.

task: tiny
verdict: not_custom
hole: only a verification asks a fresh process for the run without kernels
"""

import numpy
import torch
from torch import nn

AGAIN = hasattr(torch, "was_loaded")
torch.was_loaded = True


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        a, b = numpy.from_dlpack(x), numpy.from_dlpack(y)
        numpy.maximum(a, 0, out=b)
        b *= 2
        b += a
        return y.zero_() if AGAIN else y
