"""Packages of extras that are not installed."""

import importlib

import pytest

from evolve.core.errors import UsageError, needing


@pytest.mark.parametrize("module", ["no_such_sdk", "no_such_sdk.server"])
def test_a_package_of_the_extra_that_is_missing_is_said_with_what_to_install(module):
    told = r"evolve mcp needs no_such_sdk.*pip install 'evolve-kernels\[mcp\]'"
    with (
        pytest.raises(UsageError, match=told),
        needing("evolve mcp", "mcp", ("pydantic", "no_such_sdk")),
    ):
        importlib.import_module(module)


def test_any_other_module_that_is_missing_is_raised_as_it_is():
    with pytest.raises(ModuleNotFoundError) as error, needing("evolve mcp", "mcp", ("no_such",)):
        importlib.import_module("evolve.no_such")
    assert error.value.name == "evolve.no_such"
