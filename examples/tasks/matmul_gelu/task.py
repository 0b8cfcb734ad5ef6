# SPDX-License-Identifier: Apache-2.0
"""Linear layer followed by GELU (tanh form): the first half of a vision transformer's MLP."""

import torch
from torch import nn

CATEGORY = "matmul"

TOKENS = 3152  # 16 pictures of 197 tokens
IN_FEATURES = 192  # ViT-Tiny on a CPU, ViT-Base on a GPU (Dosovitskiy et al., 2020)
OUT_FEATURES = 768

SIZES = {
    "tiny": {"TOKENS": 24, "IN_FEATURES": 40, "OUT_FEATURES": 64},
    "cpu": {"TOKENS": 3152, "IN_FEATURES": 192, "OUT_FEATURES": 768},
    "gpu": {"TOKENS": 50432, "IN_FEATURES": 768, "OUT_FEATURES": 3072},
}


class Model(nn.Module):
    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        # Rows of unit length, so that the activations reach both tails of GELU.
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * in_features**-0.5)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.linear(x, self.weight, self.bias)
        return nn.functional.gelu(hidden, approximate="tanh")


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, IN_FEATURES)]


def get_init_inputs() -> list[int]:
    return [IN_FEATURES, OUT_FEATURES]
