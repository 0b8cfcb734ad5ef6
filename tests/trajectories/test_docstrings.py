"""Invariant: the examples in the docstrings of this package are true."""

import pytest

from tests.docstrings import failures, modules_with_examples


@pytest.mark.parametrize("module", modules_with_examples("evolve/trajectories"))
def test_examples_in_docstrings_are_true(module, capsys):
    assert failures(module, capsys) == ""
