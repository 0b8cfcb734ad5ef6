# SPDX-License-Identifier: Apache-2.0
"""Product of two square matrices."""

import torch
from torch import nn

CATEGORY = "matmul"

M = 768
N = 768
K = 768

SIZES = {
    "tiny": {"M": 48, "N": 32, "K": 40},
    "cpu": {"M": 768, "N": 768, "K": 768},
    "gpu": {"M": 4096, "N": 4096, "K": 4096},
}


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs() -> list[int]:
    return []
