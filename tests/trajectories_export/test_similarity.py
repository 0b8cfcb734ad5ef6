"""Task files compared.

- Layout, comments, docstrings and sizes make no difference; another operation does.
- A size is no distance; the closest reference comes first; same is 0 and nothing in common is 1.
- What all references have in common brings none of them closer.
- A prompt that quotes a reference shows it, one that quotes a relative of it does not.
"""

import re

import pytest

from evolve.trajectories.decontamination.similarity import Similarity, shape_of

RELU = '''
import torch
import torch.nn as nn


class Model(nn.Module):
    """
    Simple model that rectifies.
    """

    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """
        Args:
            x: of any shape.
        """
        return torch.relu(x)  # elementwise


N = 4096


def get_inputs():
    return [torch.rand(N, N)]


def get_init_inputs():
    return []
'''
SIGMOID = RELU.replace("relu", "sigmoid")
ROWS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * x * scale


def get_inputs():
    return [torch.rand(16, 64)]


def get_init_inputs():
    return [64, 1e-6]
"""
REFERENCES = {"relu": RELU, "sigmoid": SIGMOID, "rows": ROWS}


def test_layout_comments_and_sizes_make_no_difference():
    likeness = Similarity(REFERENCES)
    assert likeness.same(RELU.replace("4096", "64").replace("torch.rand", "torch.randn")) == "relu"
    assert likeness.same(RELU.replace("  # elementwise", "").replace("\n\n\n", "\n\n")) == "relu"
    assert likeness.same(RELU.replace("relu", "tanh")) is None


def test_another_size_is_at_no_distance_and_another_operation_is_at_some():
    nearest = Similarity(REFERENCES).nearest(RELU.replace("4096", "64"))
    assert (nearest[0].name, nearest[0].distance) == ("relu", 0.0)
    assert [near.name for near in nearest] == ["relu", "sigmoid", "rows"]
    assert 0.2 < nearest[1].distance < nearest[2].distance <= 1


def test_names_of_variables_are_no_distance():
    renamed = ROWS.replace("scale", "factor").replace("weight", "gamma")
    near = Similarity(REFERENCES).nearest(renamed)[0]
    assert (near.name, near.distance) == ("rows", 0.0)
    assert Similarity(REFERENCES).same(renamed) == "rows"


OPERATION = """
import torch
import torch.nn.functional as F
from torch.nn.functional import gelu, relu


class Model(torch.nn.Module):
    def forward(self, x):
        return {}
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("torch.softmax(x, dim=1)", "torch.softmax(x, dim=-1)"),
        ("F.relu(x)", "relu(x)"),
        ("torch.relu(x)", "torch.nn.functional.relu(x)"),
        ("self.scale * x", "self.factor * x"),
    ],
)
def test_one_operation_is_the_same_however_it_is_spelled(one: str, other: str):
    assert Similarity({"it": OPERATION.format(one)}).same(OPERATION.format(other)) == "it"
    begin = "    def __init__(self):\n        super().__init__()\n\n"
    annotated = OPERATION.format(other).replace("x)", "x: torch.Tensor)", 1)
    begun = annotated.replace("    def forward", f"{begin}    def forward")
    assert Similarity({"it": OPERATION.format(one)}).same(begun) == "it"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("relu(x)", "gelu(x)"),
        ("torch.einsum('ij,jk->ik', x, x)", "torch.einsum('ij,kj->ik', x, x)"),
        ("F.pad(x, (1, 1), mode='reflect')", "F.pad(x, (1, 1), mode='circular')"),
        ("x.sum(dim=1)", "x.mean(dim=1)"),
        ("x + x", "x * x"),
        ("x * x * x", "x * x"),
        ("relu(relu(relu(x)))", "relu(relu(x))"),
    ],
)
def test_another_operation_is_another_task(one: str, other: str):
    assert Similarity({"it": OPERATION.format(one)}).same(OPERATION.format(other)) is None


def test_another_number_of_the_same_operations_is_at_some_distance():
    likeness = Similarity({"it": OPERATION.format("relu(" * 3 + "x" + ")" * 3)})
    [near] = likeness.nearest(OPERATION.format("relu(" * 10 + "x" + ")" * 10))
    assert 0.2 < near.distance < 0.8


def test_a_text_that_is_no_python_still_has_a_shape():
    assert shape_of("def broken(:\n").digest != shape_of("class Model\n").digest
    assert Similarity({"broken": "def broken(:"}).nearest(RELU)[0].distance == 1.0


def test_a_prompt_shows_a_task_that_it_quotes():
    likeness = Similarity(REFERENCES)
    assert likeness.shown_in(f"Here is a task:\n```python\n{ROWS}\n```\nMake it fast.") == "rows"
    without_docstrings = re.sub(r' *"""[^"]*"""\n', "", RELU)
    assert likeness.shown_in(f"An example:\n{RELU}") == "relu"
    assert likeness.shown_in(f"An example:\n{without_docstrings}") == "relu"


def test_a_prompt_that_shows_a_relative_does_not_show_the_task():
    likeness = Similarity({"relu": RELU})
    assert likeness.shown_in(f"```python\n{SIGMOID}\n```") is None
    assert likeness.shown_in("class ModelNew: the fastest torch.relu(x) there is") is None
    assert likeness.shown_in("") is None


def test_without_references_nothing_is_near_or_shown():
    nothing = Similarity({})
    assert nothing.nearest(RELU) == []
    assert nothing.shown_in(RELU) is None
    assert nothing.same(RELU) is None
