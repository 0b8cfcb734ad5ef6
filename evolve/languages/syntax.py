"""Marks of languages in a module's syntax tree."""

import ast
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from evolve.core.errors import UsageError
from evolve.core.source.parsing import parse
from evolve.core.source.pytext import read


def parsed(source: str) -> ast.Module:
    """The tree of a source, which others read too; an empty one if it cannot be read."""
    with suppress(UsageError):
        return read(source).tree
    try:  # one that is nested too deeply for what edits sources has a language all the same
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


@lru_cache(maxsize=2)  # each language looks for its marks in the same tree
def _nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree))


@lru_cache(maxsize=2)
def imported(tree: ast.Module) -> Mapping[str, str]:
    """Local names of imports, and their full names: `tl` is `triton.language`."""
    found: dict[str, str] = {}
    for node in _nodes(tree):
        match node:
            case ast.Import(names=names):
                found |= {each.asname: each.name for each in names if each.asname}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {each.asname or each.name: f"{module}.{each.name}" for each in names}
    return found


def full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """`triton.language.load` of `tl.load`; empty for anything but names with dots."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((names.get(node.id, node.id), *reversed(parts)))


def decorated(tree: ast.Module, makes: Callable[[str], bool]) -> set[str]:
    """Functions that a maker of kernels decorates or is called on.

    Args:
        tree: of the module.
        makes: whether a function of this full name makes kernels.
    """
    names = imported(tree)
    found = set[str]()
    for node in _nodes(tree):
        match node:
            case ast.FunctionDef(name=name, decorator_list=[*makers]):
                found |= {name for maker in makers if makes(_called(maker, names))}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                found |= {name} if makes(_called(call, names)) else set()
    return found


def calls(tree: ast.Module) -> Iterator[str]:
    """Full names of functions that are called."""
    names = imported(tree)
    for node in _nodes(tree):
        if isinstance(node, ast.Call) and (name := full_name(node.func, names)):
            yield name


def arguments(tree: ast.Module) -> set[str]:
    """Names of keyword arguments and of variables that something is assigned to."""
    found = set()
    for node in _nodes(tree):
        match node:
            case ast.keyword(arg=str(name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def _called(node: ast.expr, names: Mapping[str, str]) -> str:
    """`triton.autotune` of `triton.autotune(...)(kernel)`."""
    while isinstance(node, ast.Call):
        node = node.func
    return full_name(node, names)


def launched(tree: ast.Module) -> set[str]:
    """Names of what is called after a grid: `kernel[grid](...)`, `self.kernel[grid](...)`."""
    found = set()
    for node in _nodes(tree):
        match node:
            case ast.Call(func=ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name))):
                found.add(name)
    return found
