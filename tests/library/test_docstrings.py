"""Invariant: the examples in docstrings are true, of packages whose tests have no such file."""

import pytest

from tests.docstrings import failures, modules_with_examples

PACKAGES = ("evolve/app", "evolve/tasks", "evolve/testing", "evolve/worker")
MODULES = [module for package in PACKAGES for module in modules_with_examples(package)]


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_are_true(module, capsys):
    assert failures(module, capsys) == ""
