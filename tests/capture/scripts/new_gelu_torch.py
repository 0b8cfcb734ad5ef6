"""GPT-2's GELU by the operation of PyTorch that does the same in one pass."""

from torch import nn
from torch.nn import functional


class ModelNew(nn.Module):
    def forward(self, x):
        return functional.gelu(x, approximate="tanh")
