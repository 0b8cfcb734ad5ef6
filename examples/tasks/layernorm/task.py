# SPDX-License-Identifier: Apache-2.0
"""LayerNorm over the last dimension with learned scale and shift (Ba, Kiros and Hinton, 2016)."""

import torch
from torch import nn

CATEGORY = "normalization"

TOKENS = 1024
FEATURES = 4096

SIZES = {
    "tiny": {"TOKENS": 6, "FEATURES": 320},
    "cpu": {"TOKENS": 1024, "FEATURES": 4096},
    "gpu": {"TOKENS": 16384, "FEATURES": 8192},
}


class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        # As if trained: with ones and zeros a kernel could forget them and still be right.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


def get_inputs() -> list[torch.Tensor]:
    # Rows of different scale and centre: each needs its own mean and variance.
    scale = torch.rand(TOKENS, 1) * 3 + 0.1
    return [torch.randn(TOKENS, FEATURES) * scale + torch.randn(TOKENS, 1)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
