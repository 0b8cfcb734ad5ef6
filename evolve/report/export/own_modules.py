"""Modules of this package that a task's file imports, as files of an exported folder.

A captured task draws its inputs, and a task with a rule of its own compares outputs, by functions
of `evolve.testing`; a folder that is merged elsewhere needs these, and not this package.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import evolve
from evolve.core.source.pytext import Edit, apply, read

PACKAGE = "evolve"


def with_own_modules(source: str) -> dict[str, str]:
    """The text of `reference.py`, which imports from its folder, and of all modules it then needs.

    >>> sorted(with_own_modules("from evolve.testing.checks import sampled"))
    ['_evolve_testing_checks.py', 'reference.py']
    """
    files = {"reference.py": _rewritten(source)}
    missing = [*_imported(source)]
    while missing:
        module = missing.pop()
        name = f"{_local(module)}.py"
        if name not in files:
            text = _text(module)
            files[name] = (
                f"# {module} of evolve-kernels {evolve.__version__}.\n\n{_rewritten(text)}"
            )
            missing += _imported(text)
    return files


def _statements(source: str) -> Iterator[ast.ImportFrom]:
    for node in ast.walk(read(source).tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_own(node.module or ""):
            yield node


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE


def _imported(source: str) -> Iterator[str]:
    for node in _statements(source):
        assert node.module is not None
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield inner if _is_module(inner) else node.module


def _rewritten(source: str) -> str:
    module = read(source)
    edits = []
    for node in _statements(source):
        assert node.module is not None
        lines = [_line(node.module, alias) for alias in node.names]
        edits.append(Edit(*module.span(node), "; ".join(lines)))
    return apply(source, edits)


def _line(module: str, alias: ast.alias) -> str:
    name = alias.asname or alias.name
    if _is_module(inner := f"{module}.{alias.name}"):
        return f"from . import {_local(inner)} as {name}"
    return f"from .{_local(module)} import {alias.name} as {name}"


def _local(module: str) -> str:
    return f"_{module.replace('.', '_')}"


def _is_module(name: str) -> bool:
    parent = importlib.util.find_spec(name.rpartition(".")[0])
    is_package = parent is not None and parent.submodule_search_locations is not None
    return is_package and importlib.util.find_spec(name) is not None


def _text(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
