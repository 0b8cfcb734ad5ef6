"""Examples in docstrings, run as tests of the package that they belong to."""

import doctest
import importlib
from pathlib import Path

PROJECT = Path(__file__).parents[1]


def modules_with_examples(package: str) -> list[str]:
    """The modules in a package's folder (`evolve/core`) with an example in a docstring."""
    paths = [path for path in (PROJECT / package).rglob("*.py") if ">>> " in path.read_text()]
    names = (".".join(path.relative_to(PROJECT).with_suffix("").parts) for path in paths)
    return sorted(name.removesuffix(".__init__") for name in names)


def failures(module: str, capsys) -> str:
    """The examples of a module that are not true, as doctest prints them."""
    doctest.testmod(importlib.import_module(module))
    return capsys.readouterr().out
