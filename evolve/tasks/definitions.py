"""Where a class or function was defined, and its text: in a file or in a notebook's cell."""

import __future__

import ast
import inspect
import linecache
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from evolve.core.source.parsing import parse
from evolve.core.source.pytext import first_line


class NoSource(Exception):
    """The text of a definition cannot be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The text of one `class` or `def` with its decorators, at the left margin.

    `head` is the line of `text`, from 0, that has the keyword and the name.
    """

    name: str
    text: str
    head: int
    postpones_annotations: bool

    def text_as(self, name: str) -> str:
        """The text with another name behind `class` or `def`."""
        lines = self.text.splitlines(keepends=True)
        lines[self.head] = re.sub(rf"\b{re.escape(self.name)}\b", name, lines[self.head], count=1)
        return "".join(lines)


def find_definition(thing: type | FunctionType) -> Definition:
    """Find the statement that defined a class or function.

    `inspect.getsource` finds no class of a notebook's cell before Python 3.13; the methods know
    their cell.

    Raises:
        NoSource: it was typed at a prompt, made by `exec`, or its file is gone.
    """
    functions = [f for f in _functions(thing) if not f.__code__.co_filename.startswith("<string")]
    if not functions:
        return _by_inspect(thing)
    code = functions[0].__code__
    if Path(code.co_filename).exists():
        linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise NoSource(f"{code.co_filename} has no text")
    postponed = bool(code.co_flags & __future__.annotations.compiler_flag)
    return _cut_out(_parsed(lines), lines, thing, code.co_firstlineno, postponed)


def namespace(thing: type | FunctionType) -> Mapping[str, Any]:
    """The values of a definition's names: those of its module, and of functions around it."""
    found: dict[str, Any] = {}
    if isinstance(thing, type):  # which may have no function of its own
        found |= getattr(sys.modules.get(thing.__module__), "__dict__", {})
        found |= {base.__name__: base for base in thing.__bases__}
    functions = list(_functions(thing))
    for function in functions:
        found |= function.__globals__
    for function in functions:
        found |= inspect.getclosurevars(function).nonlocals
    return found


def _functions(thing: type | FunctionType) -> Iterator[FunctionType]:
    """The function itself, or those that were written in the class."""
    for value in vars(thing).values() if isinstance(thing, type) else (thing,):
        value = getattr(value, "fget", None) or getattr(value, "__func__", value)
        value = inspect.unwrap(value) if callable(value) else value
        if isinstance(value, FunctionType) and value.__qualname__.startswith(thing.__qualname__):
            yield value


def _by_inspect(thing: type | FunctionType) -> Definition:
    """A class without a method: an Enum, a dataclass."""
    try:
        lines, _ = inspect.getsourcelines(thing)
    except (OSError, TypeError) as error:
        raise NoSource(str(error)) from error
    text = textwrap.dedent("".join(lines)).splitlines(keepends=True)
    return _cut_out(_parsed(text), text, thing, 1, False)


def _parsed(lines: list[str]) -> ast.Module:
    try:
        return parse("".join(lines))
    except SyntaxError as error:  # a cell with %magic words
        plain = [re.sub(r"^(\s*)[%!].*", r"\1pass", line) for line in lines]
        try:
            return parse("".join(plain))
        except SyntaxError:
            raise NoSource(f"its surroundings are no Python: {error.msg}") from error


def _cut_out(
    tree: ast.Module, lines: list[str], thing: type | FunctionType, line: int, postponed: bool
) -> Definition:
    kind = ast.ClassDef if isinstance(thing, type) else ast.FunctionDef
    found = [
        (first, node)
        for node in ast.walk(tree)
        if isinstance(node, kind) and node.name == thing.__name__
        for first in [first_line(node)]
        if first <= line <= (node.end_lineno or first)
    ]
    if not found:
        raise NoSource("the text has changed since it was defined")
    first, node = max(found, key=lambda each: each[0])
    text = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return Definition(thing.__name__, f"{text.rstrip()}\n", node.lineno - first, postponed)
