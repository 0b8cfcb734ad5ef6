"""Weights of the reference while a model is under construction.

Invariants: what the constructor reads of an attribute it has set is the reference's value where
name and shape agree; the class is left as it was.
"""

import pytest
import torch
from torch import nn

from evolve.worker.runner.weights import construct, given_early


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2))
        self.doubled = 2 * self.scale.detach()
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.packed = self.layers[0].weight.detach().t().contiguous()
        self.other = nn.Parameter(torch.zeros(5))


STATE = {
    "scale": torch.ones(2),
    "layers.0.weight": torch.randn(4, 3),
    "layers.1.running_mean": torch.randn(4),
    "other": torch.ones(6),
}


def test_what_a_constructor_packs_is_the_references():
    with given_early(Packed, STATE):
        model = Packed()
    assert torch.equal(model.doubled, torch.full((2,), 2.0))
    assert torch.equal(model.packed, STATE["layers.0.weight"].t())
    assert torch.equal(model.layers[1].running_mean, STATE["layers.1.running_mean"])
    assert torch.equal(model.other, torch.zeros(5))


def test_the_class_is_left_as_it_was_also_by_a_constructor_that_fails():
    class Failing(nn.Module):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        def __init__(self):
            super().__init__()
            raise OSError

    for model in (Packed, Failing):
        own = vars(model).get("__setattr__")
        with pytest.raises(OSError), given_early(model, STATE):
            Failing()
        assert vars(model).get("__setattr__") is own


def test_complex_weights_keep_their_imaginary_parts():
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, dtype=torch.cfloat))
            self.gain = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))

    state = {"weight": torch.randn(3, dtype=torch.cfloat), "gain": torch.randn(3)}
    model = construct(Spectral, 0, [], state, torch.device("cpu"))
    assert torch.equal(model.weight, state["weight"])
    assert torch.equal(model.gain, state["gain"])
