"""A script's code that reports the names it binds at its top level, and is the same otherwise.

Python runs a script with one dict of names, a plain one, so its code is what has to report.
"""

import ast
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from evolve.core.source.scopes import bound_names

_PLACE = "<place of the function that names are reported to>"
_BINDING = ast.FunctionDef | ast.Assign | ast.AnnAssign


def reporting(source: bytes, path: str, report: Callable[[str], Any]) -> CodeType:
    """The code of a module that calls `report(name)` after each definition and assignment.

    Lines, and the text of every definition, are those of the source.

    Raises:
        SyntaxError: the source is not valid Python.
    """
    tree = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    _report_names(tree)
    code = compile(tree, path, "exec", dont_inherit=True)
    constants = (report if one == _PLACE else one for one in code.co_consts)
    return code.replace(co_consts=tuple(constants))


def _report_names(node: ast.AST) -> None:
    """Add reports to the statements of a module, and to those in its compound statements."""
    for body in _bodies(node):
        for place in range(len(body), 0, -1):
            statement = body[place - 1]
            if isinstance(statement, _BINDING):
                body[place:place] = [_report(name, statement) for name in _names(statement)]
            elif not isinstance(statement, ast.AsyncFunctionDef | ast.ClassDef):
                _report_names(statement)


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for value in vars(node).values():
        if not isinstance(value, list) or not value:
            continue
        if isinstance(value[0], ast.stmt):
            yield value
        elif isinstance(value[0], ast.ExceptHandler | ast.match_case):
            for one in value:
                yield from _bodies(one)


def _names(statement: ast.stmt) -> list[str]:
    return sorted(bound_names([statement]))


def _report(name: str, statement: ast.stmt) -> ast.stmt:
    # The function is a constant of the code, because the script would see a global name.
    place = ast.Constant(_PLACE)
    # A bare string in its place would cause Python's warning that a string is not callable.
    function = ast.IfExp(ast.Constant(value=True), place, place)
    call = ast.Call(function, [ast.Constant(name)], [])
    report = ast.copy_location(ast.Expr(call), statement)
    return ast.fix_missing_locations(report)
