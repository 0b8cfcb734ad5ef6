# SPDX-License-Identifier: Apache-2.0
"""Sum of every row of a matrix."""

import torch
from torch import nn

CATEGORY = "reduction"

ROWS = 2048
COLUMNS = 4096

SIZES = {
    "tiny": {"ROWS": 12, "COLUMNS": 320},
    "cpu": {"ROWS": 2048, "COLUMNS": 4096},
    "gpu": {"ROWS": 16384, "COLUMNS": 32768},
}


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(dim=-1)


def get_inputs() -> list[torch.Tensor]:
    # Centred: with values of one sign every sum would be near COLUMNS times their mean.
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
