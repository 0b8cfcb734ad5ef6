"""Attention of wide heads is taken apart, and computes what it did."""

import pytest
import torch
from torch.export import export
from torch.nn import functional as F

from evolve.worker.build.wide_attention import WIDEST, take_apart


class Attention(torch.nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.settings = settings

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.settings) + 1


def taken(model, operands):
    """What is called instead of attention, once it gives what the model does."""
    program = export(model.eval(), operands, strict=False)
    take_apart(program.graph)
    program = program.run_decompositions({})
    torch.testing.assert_close(program.module()(*operands), model(*operands))
    return {
        str(node.target).split(".")[1] for node in program.graph.nodes if "." in str(node.target)
    }


def operands(features, dtype=torch.float32):
    """Five queries, nine keys; values have other numbers of features than keys."""
    torch.manual_seed(0)
    shapes = (5, features - 8), (9, features - 8), (9, features)
    return tuple(torch.randn(2, 3, *shape, dtype=dtype) for shape in shapes)


@pytest.mark.sample(1)
@pytest.mark.parametrize("settings", [{}, {"scale": 0.25}, {"scale": 0.0}])
def test_wide_heads_become_two_products_and_a_softmax(settings):
    called = taken(Attention(**settings), operands(WIDEST + 4))
    assert called == {"transpose", "matmul", "mul", "softmax", "add"}


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        ({}, operands(WIDEST)),
        ({}, operands(WIDEST + 4, torch.bfloat16)),
        ({"is_causal": True}, operands(WIDEST + 4)),
        ({"attn_mask": torch.zeros(5, 9)}, operands(WIDEST + 4)),
    ],
    ids=["narrow", "half", "causal", "mask"],
)
def test_other_attention_stays_as_it_is(settings, given):
    program = export(Attention(**settings).eval(), given, strict=False)
    before = str(program.graph)
    take_apart(program.graph)
    assert str(program.graph) == before
