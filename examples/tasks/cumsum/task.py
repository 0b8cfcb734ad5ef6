# SPDX-License-Identifier: Apache-2.0
"""Cumulative sum along every row of a matrix."""

import torch
from torch import nn

CATEGORY = "scan"

ROWS = 1024
COLUMNS = 4096

SIZES = {
    "tiny": {"ROWS": 6, "COLUMNS": 320},
    "cpu": {"ROWS": 1024, "COLUMNS": 4096},
    "gpu": {"ROWS": 8192, "COLUMNS": 32768},
}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=-1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
