"""Sketches estimate how much two texts have in common.

Invariants:
1. Layout, comments, values of tunables and names of variables do not count.
2. The estimated overlap follows the true share of changed text.
3. Any text has a sketch of the same size; anything else is none.
4. A text has the same sketch in every version, for runs are continued with those that they stored.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolve.core.source.sketch import BINS, overlap, read_sketch, sketch

SOURCE = '''
import torch
TUNABLE = {"BLOCK": (32, 64)}
BLOCK = 32

CPP = """
#include <cmath>
void scale(float* x, int n) {
  for (int i = 0; i < n; ++i) { x[i] *= 2.0f; }  // twice
}
"""

class ModelNew(torch.nn.Module):
    """A model."""
    def forward(self, x):
        total = x.sum(dim=-1)
        return torch.exp(total) * BLOCK
'''


STORED = (
    "yBo6P6FYQ8krje1PsfVX8HXXiMsa1zmtD2+X+VvLzjBrJYDiRJsGyHhNHH7gQqTJK43MejKU9mDCJABixCYNb9EzlUOe"
    "g0CiqgzxbtAylPZYwOTOMJL0VrgafN5AogQzlfdZNvJJCzOVacsegOJLnf9hu71hwyU3macG9VeiBGY="
)


def alike(one: str, other: str) -> float:
    first, second = read_sketch(sketch(one)), read_sketch(sketch(other))
    return overlap(sum(a == b for a, b in zip(first, second, strict=True)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  // twice", ""),
        ('    """A model."""\n', ""),
        ("total", "accumulated"),
        ("int i = 0; i < n; ++i", "int k = 0; k < n; ++k"),
        ("BLOCK = 32", "BLOCK = 64"),
        ("x[i] *= 2.0f;", "x[i]  *=\n 2.0f;"),
    ],
)
def test_what_does_not_count_changes_nothing(old, new):
    changed = SOURCE.replace(old, new)
    changed = changed.replace("x[i]", "x[k]") if "++k" in new else changed
    assert changed != SOURCE
    assert sketch(changed) == sketch(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"),
    [("exp", "log"), ("float*", "double*"), ("2.0f", "3.0f"), ("dim=-1", "dim=0")],
)
def test_what_is_called_computed_or_declared_counts(old, new):
    assert alike(SOURCE, SOURCE.replace(old, new)) < 1


@pytest.mark.parametrize("kept", [0.98, 0.9, 0.75, 0.5])
def test_the_overlap_follows_the_share_of_lines_in_common(kept):
    rng = random.Random(1)
    errors = []
    for _ in range(10):
        lines = [f"f{rng.random()}({rng.random()}, {rng.random()})" for _ in range(200)]
        others = [line if rng.random() < kept else f"g({rng.random()})" for line in lines]
        true = sum(a == b for a, b in zip(lines, others, strict=True)) / len(lines)
        true = true / (2 - true)  # of the union
        errors.append(alike("\n".join(lines), "\n".join(others)) - true)
    assert abs(sum(errors) / len(errors)) < 0.06
    assert max(map(abs, errors)) < 0.2


def test_a_stored_sketch_equals_the_one_made_today():
    assert sketch(SOURCE) == STORED


def test_other_programs_have_next_to_nothing_in_common():
    assert alike(SOURCE, "def f(a):\n    return [b for b in a if b]") < 0.1


@given(st.text(max_size=200))
def test_any_text_has_a_sketch(text):
    word = sketch(text)
    assert len(word) == 172
    assert len(read_sketch(word)) == BINS


@given(st.one_of(st.text(max_size=200), st.floats(), st.none()))
def test_what_is_no_sketch_is_none(word):
    found = read_sketch(word)
    assert found is None or len(found) == BINS
