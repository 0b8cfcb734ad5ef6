# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy of every token against its integer label, as in language-model training."""

import torch
from torch import nn

CATEGORY = "loss"

TOKENS = 512
CLASSES = 8192

SIZES = {
    "tiny": {"TOKENS": 6, "CLASSES": 320},
    "cpu": {"TOKENS": 512, "CLASSES": 8192},
    "gpu": {"TOKENS": 8192, "CLASSES": 128256},
}


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        # One loss per token: their mean would hardly differ from one batch to the next.
        return nn.functional.cross_entropy(logits, labels, reduction="none")


def get_inputs() -> list[torch.Tensor]:
    # Logits of a model that is sure of itself: the losses range from about 0 to 40.
    return [torch.randn(TOKENS, CLASSES) * 6, torch.randint(0, CLASSES, (TOKENS,))]


def get_init_inputs() -> list[int]:
    return []
