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
from evolve.report.export.trees import refusal

PACKAGE = "evolve"
_IMPORTERS = ("import_module", "__import__")


def with_own_modules(source: str) -> dict[str, str]:
    """The text of `reference.py`, which imports from its folder, and of all modules it then needs.

    Raises:
        UsageError: an import of this package names no module or value of one (`import evolve.x`,
            `from evolve.x import *`, a whole package, a name in a string).

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
        if not any(_is_own(name) for name in _imports(node)):
            continue
        if not isinstance(node, ast.ImportFrom) or any(map(_is_whole, _names(node))):
            assert isinstance(node, ast.stmt | ast.expr)
            raise refusal(
                f"line {node.lineno}, `{ast.unparse(node)}`, may need all of this package; write "
                "`from evolve.MODULE import NAME`"
            )
        yield node


def _imports(node: ast.AST) -> list[str]:
    """Modules that a statement or a call imports, as far as it names them."""
    match node:
        case ast.ImportFrom(level=0, module=str(module)):
            return [module]
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.Call(
            func=ast.Name(id=name) | ast.Attribute(attr=name), args=[ast.Constant(str(module)), *_]
        ) if name in _IMPORTERS:
            return [module]
    return []


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == PACKAGE


def _names(node: ast.ImportFrom) -> list[str]:
    return [f"{node.module}.{alias.name}" for alias in node.names]


def _is_whole(name: str) -> bool:
    """Whether more than one file may be needed: a package, or all names of a module."""
    if name.endswith(".*"):
        return True
    return _is_module(name) and _is_package(name)


def _imported(source: str) -> Iterator[str]:
    for node in _statements(source):
        assert node.module is not None
        for inner in _names(node):
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
    return _is_package(name.rpartition(".")[0]) and importlib.util.find_spec(name) is not None


def _is_package(name: str) -> bool:
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.submodule_search_locations is not None


def _text(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")
