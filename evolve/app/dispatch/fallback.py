"""The reference as a part of another module: its `Model` with all that it needs.

Statements that may do something besides binding a name stay, such as settings of torch, writes to a
table, the registration of an operator.
"""

import ast

from evolve.app.dispatch.effects import PACKAGE, TopLevelEffects, changed_names, roots
from evolve.core.source.pytext import Module
from evolve.core.source.scopes import bound_names
from evolve.core.task import Task

_LICENCE = "SPDX-License-Identifier:"


def fallback_of(task: Task) -> str:
    """The reference for calls of any shape; empty if it cannot stand alone.

    It cannot if it reads a constant that sizes or cases set, a file beside it, or this package.
    """
    module = Module(task.source)
    needed = _needed(module.tree, _set_by_cases(task))
    bound = {name for node in needed for name in bound_names([node])}
    if bound & {"SIZES", *_set_by_cases(task)} or any(_is_foreign(node, task) for node in needed):
        return ""
    licence = [line for line in task.source.splitlines() if _LICENCE in line][:1]
    return "\n".join([*licence, *(_text(module, node) for node in needed)]) + "\n"


def _text(module: Module, node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return "\n\n" + module.source[slice(*module.definition_span(node))] + "\n"
    return module.segment(node)


def _needed(tree: ast.Module, set_by_cases: set[str]) -> list[ast.stmt]:
    """Statements that may have an effect, and those that bind what they or `Model` use, in order.

    Args:
        tree: of the reference.
        set_by_cases: constants that a case may set.
    """
    effects = TopLevelEffects(tree, set_by_cases)
    return _with_used(tree, [node for node in tree.body if effects.has(node)], {"Model"})


def _with_used(tree: ast.Module, found: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """These statements, and those that bind or fill the names or what they all use, in order."""
    wanted, taken = {*names}, set[int]()
    while True:
        taken |= {id(node) for node in found}
        for node in found:
            wanted |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        found = [
            node for node in tree.body if id(node) not in taken and changed_names(node) & wanted
        ]
        if not found:
            break
    return [node for node in tree.body if id(node) in taken]


def _set_by_cases(task: Task) -> set[str]:
    """Module constants that a case or a size sets: all that statements about sizes spell out."""
    names = {name for case in task.cases for name in case.constants}
    for node in _with_used(ast.parse(task.source), [], {"SIZES"}):
        for part in ast.walk(node):
            match part:
                case ast.Constant(value=str(name)):
                    names.add(name)
                case ast.Call(keywords=words):
                    names |= {word.arg for word in words if word.arg}
    return names


def _is_foreign(node: ast.stmt, task: Task) -> bool:
    """Whether a statement imports this package, or reads a file beside the task's."""
    beside = {path.partition("/")[0].removesuffix(".py") for path in task.files}
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return "__file__" in names or bool({*roots(node)} & ({PACKAGE, ""} | beside))
