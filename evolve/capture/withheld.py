"""Texts that a task must not show to models: those that are called, or look like, secrets."""

import ast
import inspect
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from evolve.llm.secrets import is_secret_variable, looks_like_key, scrub

_Named = tuple[str, ast.expr | None]


def is_withheld(name: object, value: object) -> bool:
    """Whether a value of this name is a secret: numbers are none (`max_tokens`, `key_dim`)."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str) or not text:
        return False
    return is_secret_variable(str(name)) or looks_like_key(text)


def names_of_arguments(kind: type, count: int) -> list[str]:
    """Names of so many positional arguments of a constructor, where they are known."""
    try:
        names = list(inspect.signature(kind.__init__).parameters)[1:]  # type: ignore[misc]
    except (ValueError, TypeError):
        names = []
    return [names[n] if n < len(names) else f"argument {n}" for n in range(count)]


def without_secrets(text: str) -> tuple[str, set[str]]:
    """A module's text with None for the secrets that it spells out, and their names."""
    tree, whole = ast.parse(text), text.encode()
    starts = [0, *accumulate(len(line) for line in whole.splitlines(keepends=True))]
    found: dict[tuple[int, int], str] = {}
    for name, value in _named(tree):
        if isinstance(value, ast.Constant) and is_withheld(name, value.value):
            first = starts[value.lineno - 1] + value.col_offset
            last = starts[(value.end_lineno or 0) - 1] + (value.end_col_offset or 0)
            found[first, last] = name
    for first, last in sorted(found, reverse=True):
        whole = whole[:first] + b"None" + whole[last:]
    return scrub(whole.decode()), set(found.values())


def _named(tree: ast.AST) -> Iterator[_Named]:
    """Expressions with the names that they are given."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield from ((_name(target), value) for target in targets)
            case ast.AnnAssign(target=target, value=value):
                yield _name(target), value
            case ast.keyword(arg=str(name), value=value):
                yield name, value
            case ast.Dict(keys=keys, values=values):
                named = zip(keys, values, strict=True)
                yield from ((_name(key), value) for key, value in named if key)
            case ast.arguments():
                plain = [*node.posonlyargs, *node.args]
                some = plain[len(plain) - len(node.defaults) :]
                yield from _defaults(some, node.defaults)
                yield from _defaults(node.kwonlyargs, node.kw_defaults)


def _defaults(some: list[ast.arg], values: Any) -> Iterator[_Named]:
    return ((one.arg, value) for one, value in zip(some, values, strict=True))


def _name(target: ast.expr) -> str:
    match target:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
            return name
        case ast.Subscript(slice=inner):
            return _name(inner)
    return ""
