"""Row 38: a fp32 product with operands rounded to the 10 bits of TF32.

task: matmul
verdict: wrong_value
"""

import torch
from torch import nn


def shortened(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return shortened(a) @ shortened(b)
