"""Where a program defines its functions and classes, by lines: for edits that name one."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evolve.core.errors import UsageError
from evolve.core.source.pytext import Module, first_line

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class: lines `start` to `end` (from 0, `end` excluded), with its decorators.

    `name` is qualified by the classes around it: `ModelNew.forward`.
    """

    name: str
    start: int
    end: int


def definitions(source: str) -> list[Definition]:
    r"""All definitions outside of functions, in their order; none if the text is not Python.

    Nor if it has other ends of lines than `\n` and `\r\n`, by which callers do not count.

    >>> [each.name for each in definitions("class A:\n    def f(self): pass")]
    ['A', 'A.f']
    """
    if source.count("\r") != source.count("\r\n"):
        return []
    try:
        tree = Module(source).tree
    except UsageError:
        return []
    return list(_within(tree.body, ""))


def named(found: Sequence[Definition], name: str) -> list[Definition]:
    """Those of that name; a method may be named without its class."""
    exact = [each for each in found if each.name == name]
    return exact or [each for each in found if each.name.endswith(f".{name}")]


def _within(body: Sequence[ast.stmt], prefix: str) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, _DEFINES):
            end = node.end_lineno or node.lineno
            yield Definition(prefix + node.name, first_line(node) - 1, end)
        if isinstance(node, ast.ClassDef):
            yield from _within(node.body, f"{prefix}{node.name}.")
        elif not isinstance(node, _DEFINES):
            inner = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]
            yield from _within(inner, prefix)
