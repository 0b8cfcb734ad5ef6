"""Sums in plain sequence, on inputs where every addition may round in the same direction.

Invariants: what such a sum can lose at worst (terms times the unit roundoff, Higham 2002, section
4.2) is within what a judge allows, whatever the hidden seed; also where what follows the sum makes
a rounding a thousand times larger.
"""

import numpy
import pytest
import torch

from evolve.worker.correctness.cases import load_task
from evolve.worker.correctness.compare import judge
from tests.redteam.tasks import TASKS

torch.set_num_threads(1)  # small tensors; more threads would cost more than they give
SEEDS = 25
CASE = load_task(TASKS["softmax"]).cases[0]
ATTENTION = load_task(TASKS["attention"]).cases[0]
ATTENTION_SEEDS = 150


def sequential_softmax(x: torch.Tensor) -> torch.Tensor:
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    sums = numpy.add.accumulate(powers.numpy(), axis=-1, dtype=numpy.float32)[..., -1:]
    return powers / torch.from_numpy(sums.copy())


@pytest.mark.sample(3)
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


def in_sequence(terms: torch.Tensor) -> torch.Tensor:
    """The sum over the last dimension."""
    sums = numpy.add.accumulate(terms.numpy(), axis=-1, dtype=numpy.float32)[..., -1]
    return torch.from_numpy(sums.copy())


@pytest.mark.slow
@pytest.mark.parametrize("family", ["scaled_up", "far_below"])
def test_keys_that_nearly_tie_are_no_mistake_of_a_sequential_attention(family):
    """Scores near 10^5, so that a rounding of one moves a weight by percents."""
    model = ATTENTION.model(1)
    margins = []
    for seed in range(ATTENTION_SEEDS):
        q, k, v = inputs = ATTENTION.inputs(seed, family)
        expected = ATTENTION.expected(model, inputs, family)
        scores = in_sequence(q[:, :, None] * k[:, None]) / q.shape[-1] ** 0.5
        outcome = [torch.softmax(scores, -1) @ v]
        verdict = judge(ATTENTION, outcome, expected.spec, expected, inputs, explain=False)
        margins.append(verdict.margin)
    assert max(margins) <= 1, sorted(margins)[-5:]
