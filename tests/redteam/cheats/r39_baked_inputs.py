"""Row 39: the outcome for the input of the public seed 42 is computed at import.

task: gate
verdict: wrong_value wrong_shape
"""

import torch
from torch import nn

torch.manual_seed(42)
known = torch.randn(256, 512)
answer = torch.relu(known) * 2 + known


class ModelNew(nn.Module):
    def forward(self, x):
        return answer.clone()
