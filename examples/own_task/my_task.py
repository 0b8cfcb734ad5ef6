"""A task of your own: squared ReLU of a gated projection's halves, weighted per feature.

Run it from this folder, without a GPU or a key:

    evolve run task=./my_task.py

A task file is plain PyTorch in the KernelBench convention; only these names matter:

- `Model`, an `nn.Module`: the reference that every candidate must agree with and is timed against.
  A candidate is a module with `ModelNew`, of the same constructor, `forward` and parameter names.
- `get_inputs()`, the arguments of `forward`; called again under hidden seeds, so use torch's random
  functions and let the values matter: no kernel should come close with zeros or a constant.
- `get_init_inputs()`, the arguments of the constructor.

Optional:

- `SIZES`: module constants for `tiny` (the Triton interpreter), `cpu` and `gpu`.
- `CATEGORY`: one word for listings and for the knowledge that a model is shown.
- `check(output, reference, inputs)`: your own rule of correctness, where closeness is not the rule
  (sampling, routing, quantised outputs). It returns a bool, or a bool and a reason, and accepts the
  reference's own output.
- beside the file, `my_task.cases.yaml` or `cases.yaml`: more shapes, timed or only checked.
- beside the file, `seeds/*.py`: candidates to start from. Without a model to write code a search
  needs at least one.
"""

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
        self.weight = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return torch.relu(gate).square() * value * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, FEATURES), torch.randn(TOKENS, FEATURES)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
