"""Sums in plain sequence, on inputs where every addition may round in the same direction.

Invariant: what such a sum can lose at worst (terms times the unit roundoff, Higham 2002, section
4.2) is within what a judge allows, whatever the hidden seed.
"""

import numpy
import pytest
import torch

from evolve.worker.budget import judge
from evolve.worker.taskfile import load_task
from tests.redteam.tasks import TASKS

torch.set_num_threads(1)  # small tensors; more threads would cost more than they give
SEEDS = 25
CASE = load_task(TASKS["softmax"]).cases[0]


def sequential_softmax(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    sums = numpy.add.accumulate(powers.numpy(), axis=-1, dtype=numpy.float32)[..., -1:]
    return powers / torch.from_numpy(sums.copy())


@pytest.mark.parametrize("family", CASE.families())
def test_a_sequential_softmax_is_within_its_budget_for_any_seed(family):
    model = CASE.model(1)
    margins = []
    for seed in range(SEEDS):
        inputs = CASE.inputs(seed, family)
        expected = CASE.expected(model, inputs, family)
        outcome = [sequential_softmax(inputs[0])]
        margins.append(judge(CASE, outcome, expected.spec, expected, inputs, explain=False).margin)
    assert max(margins) <= 1, margins
