# SPDX-License-Identifier: Apache-2.0
"""Bias and GELU after a projection, in the tanh form of GPT-2 (Hendrycks and Gimpel, 2016)."""

import torch
from torch import nn

CATEGORY = "elementwise"

TOKENS = 1024
FEATURES = 4096

SIZES = {
    "tiny": {"TOKENS": 6, "FEATURES": 320},
    "cpu": {"TOKENS": 1024, "FEATURES": 4096},
    "gpu": {"TOKENS": 16384, "FEATURES": 16384},
}


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x + self.bias, approximate="tanh")


def get_inputs() -> list[torch.Tensor]:
    # Wide enough to meet the tails, where GELU is 0 or the identity, as well as the bend.
    return [torch.randn(TOKENS, FEATURES) * 2]


def get_init_inputs() -> list[int]:
    return [FEATURES]
