"""What PyTorch's compiler makes of a reference, as the worker asks it.

Invariants: what would take minutes, or give a program of thousands of calls, is refused in words
before it is begun; every setting is one that this version of Inductor knows.
"""

import pytest
import torch
from torch import nn

from evolve.core.compiled import VARIANTS
from evolve.core.errors import UsageError
from evolve.worker.compiler import SETTINGS, compile_model, settings


class Recurrent(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0] * 2


def compiled(layer, steps):
    return compile_model(Recurrent(layer).eval(), [torch.randn(steps, 2, 8)], settings("default"))


@pytest.mark.parametrize(
    ("layer", "steps", "all_steps"),
    [
        (nn.GRU(8, 8), 65, 65),
        (nn.LSTM(8, 8, num_layers=3, bidirectional=True), 20, 120),
        (nn.RNN(8, 8, num_layers=2), 33, 66),
    ],
    ids=["gru", "lstm", "rnn"],
)
def test_a_long_recurrence_is_refused_with_the_number_of_its_steps(layer, steps, all_steps):
    with pytest.raises(UsageError, match=f"recurrent layers of {all_steps} steps"):
        compiled(layer, steps)


def test_a_recurrence_whose_batch_comes_first_is_measured_along_its_steps():
    layer = nn.GRU(8, 8, batch_first=True)
    case = compile_model(
        Recurrent(layer).eval(), [torch.randn(100, 2, 8)], settings("default")
    )  # 100 sequences of two steps
    assert "def call(" in case.code


def test_there_are_settings_for_every_variant_and_no_others():
    assert set(SETTINGS) == set(VARIANTS)
    with pytest.raises(UsageError, match="choose of default"):
        settings("fastest")
