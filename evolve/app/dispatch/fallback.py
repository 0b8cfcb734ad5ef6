"""The reference as a part of another module: its `Model`, and only the definitions it needs."""

import ast
from collections.abc import Iterator

from evolve.core.source.pytext import Module
from evolve.core.source.scopes import bound_names
from evolve.core.task import Task

_LICENCE = "SPDX-License-Identifier:"
_PACKAGE = "evolve"


def fallback_of(task: Task) -> str:
    """The reference for calls of any shape; empty if it cannot stand alone.

    It cannot if it reads a constant that sizes or cases set, a file beside it, or this package.
    """
    module = Module(task.source)
    needed = _needed(module.tree)
    bound = {name for node in needed for name in bound_names([node])}
    if bound & {"SIZES", *_set_by_cases(task)} or any(_is_foreign(node, task) for node in needed):
        return ""
    licence = [line for line in task.source.splitlines() if _LICENCE in line][:1]
    return "\n".join([*licence, *(_text(module, node) for node in needed)]) + "\n"


def _text(module: Module, node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return "\n\n" + module.source[slice(*module.definition_span(node))] + "\n"
    return module.segment(node)


def _needed(tree: ast.Module) -> list[ast.stmt]:
    """The statements that bind the names that `Model` uses, directly or not, in order."""
    wanted, taken = {"Model"}, set[int]()
    while found := [
        node for node in tree.body if id(node) not in taken and bound_names([node]) & wanted
    ]:
        taken |= {id(node) for node in found}
        for node in found:
            wanted |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return [node for node in tree.body if id(node) in taken]


def _set_by_cases(task: Task) -> set[str]:
    """Module constants that a case or a size sets."""
    names = {name for case in task.cases for name in case.constants}
    for node in ast.parse(task.source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="SIZES")], value=value):
                keys = [part for part in ast.walk(value) if isinstance(part, ast.Dict)]
                constants = (key for each in keys for key in each.keys)
                names |= {str(key.value) for key in constants if isinstance(key, ast.Constant)}
    return names


def _is_foreign(node: ast.stmt, task: Task) -> bool:
    """Whether a statement imports this package, or reads a file beside the task's."""
    beside = {path.partition("/")[0].removesuffix(".py") for path in task.files}
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return "__file__" in names or bool({*_roots(node)} & ({_PACKAGE, ""} | beside))


def _roots(node: ast.stmt) -> Iterator[str]:
    """The packages that a statement imports from; empty for a relative import."""
    for part in ast.walk(node):
        match part:
            case ast.Import(names=aliases):
                yield from (alias.name.partition(".")[0] for alias in aliases)
            case ast.ImportFrom(module=module, level=level):
                yield "" if level else (module or "").partition(".")[0]
            case ast.Call(func=ast.Name(id="__import__"), args=[ast.Constant(value=str(name))]):
                yield name.partition(".")[0]
