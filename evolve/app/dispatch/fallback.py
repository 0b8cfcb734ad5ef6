"""The reference as a part of another module: its `Model` with all that it needs.

Statements that may do something besides binding a name stay, such as settings of torch, writes to a
table, the registration of an operator.
"""

import ast
import sys
from collections.abc import Iterator

from evolve.core.source.pytext import Module
from evolve.core.source.scopes import bound_names
from evolve.core.task import Task

_LICENCE = "SPDX-License-Identifier:"
_PACKAGE = "evolve"
_INPUTS = frozenset(("get_inputs", "get_init_inputs"))
_QUIET = sys.stdlib_module_names | {"torch", "numpy", _PACKAGE}  # to import them does nothing else
_OF_THE_JUDGE = {"SIZES", "PRECISION", "ACCUMULATION", "TIMING", "MODE", "NAN"}  # it reads them


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
    found = [node for node in tree.body if _has_effect(node, set_by_cases)]
    return _with_used(tree, found, {"Model"})


def _with_used(tree: ast.Module, found: list[ast.stmt], names: set[str]) -> list[ast.stmt]:
    """These statements, and those that bind the names or what they all use, in order."""
    wanted, taken = {*names}, set[int]()
    while True:
        taken |= {id(node) for node in found}
        for node in found:
            wanted |= {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        found = [
            node for node in tree.body if id(node) not in taken and bound_names([node]) & wanted
        ]
        if not found:
            break
    return [node for node in tree.body if id(node) in taken]


def _has_effect(node: ast.stmt, set_by_cases: set[str]) -> bool:
    """Whether a statement may do more than to bind names."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.FunctionDef(name=name) if name in _INPUTS:
            return False
        case ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators):
            return bool(decorators)
        case ast.Import() | ast.ImportFrom():
            return any(root not in _QUIET for root in _roots(node))
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return False
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if not _writes_into(node):
            calls = any(isinstance(part, ast.Call) for part in ast.walk(node))
            bound = bound_names([node])
            return calls and not bound & set_by_cases and not bound <= _OF_THE_JUDGE
    return True


def _writes_into(node: ast.stmt) -> bool:
    """Whether a statement assigns to an attribute or to an item."""
    return any(
        isinstance(part, ast.Attribute | ast.Subscript) and isinstance(part.ctx, ast.Store)
        for part in ast.walk(node)
    )


def _set_by_cases(task: Task) -> set[str]:
    """Module constants that a case or a size sets."""
    names = {name for case in task.cases for name in case.constants}
    for node in _with_used(ast.parse(task.source), [], {"SIZES"}):
        for part in ast.walk(node):
            match part:
                case ast.Dict(keys=keys):
                    names |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
                case ast.Call(keywords=words):
                    names |= {word.arg for word in words if word.arg}
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
