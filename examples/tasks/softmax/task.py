# SPDX-License-Identifier: Apache-2.0
"""Softmax over the last dimension of a matrix."""

import torch
from torch import nn

CATEGORY = "softmax"

ROWS = 1024
COLUMNS = 4096

SIZES = {
    "tiny": {"ROWS": 6, "COLUMNS": 320},
    "cpu": {"ROWS": 1024, "COLUMNS": 4096},
    "gpu": {"ROWS": 8192, "COLUMNS": 16384},
}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # A wide spread gives rows with a few large probabilities; with a narrow one every output is
    # close to 1 / COLUMNS, and a constant would be nearly right.
    return [torch.randn(ROWS, COLUMNS) * 4]


def get_init_inputs() -> list[int]:
    return []
