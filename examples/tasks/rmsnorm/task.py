# SPDX-License-Identifier: Apache-2.0
"""RMSNorm over the last dimension with a learned scale, as in LLaMA (Zhang and Sennrich, 2019)."""

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
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.eps = eps
        # As if trained: with ones a kernel could forget the scale and still be right.
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)
        return x * torch.rsqrt(mean_square + self.eps) * self.weight


def get_inputs() -> list[torch.Tensor]:
    # Rows of different magnitude: each needs its own statistic.
    return [torch.randn(TOKENS, FEATURES) * (torch.rand(TOKENS, 1) * 3 + 0.1)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
