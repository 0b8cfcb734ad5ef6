# SPDX-License-Identifier: Apache-2.0
"""Scaled dot-product attention of several heads, with the score matrix written out."""

import torch
from torch import nn

CATEGORY = "attention"

HEADS = 12  # batch times heads
LENGTH = 512
WIDTH = 64

SIZES = {
    "tiny": {"HEADS": 2, "LENGTH": 48, "WIDTH": 16},
    "cpu": {"HEADS": 12, "LENGTH": 512, "WIDTH": 64},
    "gpu": {"HEADS": 64, "LENGTH": 4096, "WIDTH": 64},
}


class Model(nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = torch.matmul(q, k.transpose(-2, -1)) * q.shape[-1] ** -0.5
        return torch.matmul(torch.softmax(scores, dim=-1), v)


def get_inputs() -> list[torch.Tensor]:
    # Larger queries sharpen the weights: with flat ones every output is near the mean of v.
    q, k, v = (torch.randn(HEADS, LENGTH, WIDTH) for _ in range(3))
    return [q * 2.5, k, v]


def get_init_inputs() -> list[int]:
    return []
