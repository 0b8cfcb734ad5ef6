"""Row 6: the judge's own modules are patched where the candidate can reach copies of them.

task: gate
verdict: wrong_value
"""

import sys

import torch
from torch import nn

import evolve.worker.budget as budget
import evolve.worker.statistics as statistics
from evolve.core.evaluation import Status

budget.judge = lambda *_, **__: budget.Judgement(Status.CORRECT, margin=0.0)
statistics.ratio_interval = lambda *_, **__: statistics.Ratio(100.0, 100.0, 100.0)
for module in list(sys.modules.values()):
    if module.__name__.startswith("evolve.") and hasattr(module, "judge"):
        module.judge = budget.judge


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.zeros_like(x)
