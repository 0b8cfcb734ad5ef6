"""Questions about syntax trees of Triton kernels, and edits at their nodes."""

import ast
import math
import re
from collections.abc import Iterator

from evolve.core.source.pytext import Edit, Module

Names = frozenset[str]
_PLACES = ("program_id", "arange", "num_programs")
_CLOSING = re.compile(r"\s*\)")
_VALUES = ("load", "dot", "sum", "max", "min", "exp", "log", "zeros", "full")


def last_name(node: ast.AST) -> str:
    """`load` of `tl.load`, of `tl.load(...)`, and of `load`."""
    match node:
        case ast.Call(func=inner):
            return last_name(inner)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def index_names(function: ast.FunctionDef) -> Names:
    """Names that hold places (rows, columns, pointers, masks) and not values of tensors."""
    names: set[str] = set()
    known = -1
    while known < len(names):
        known = len(names)
        for target, value in _bindings(function):
            if is_index(value, frozenset(names)):
                names.add(target)
    return frozenset(names)


def _bindings(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, value
            case ast.AugAssign(target=ast.Name(name), value=value):
                yield name, value
            case ast.For(target=ast.Name(name), iter=ast.Call(func=range_)):
                if last_name(range_) in ("range", "static_range"):
                    yield name, ast.Call(ast.Name("arange", ast.Load()), [], [])
            case _:
                continue


def is_index(node: ast.expr, names: Names) -> bool:
    """Whether an expression says a place: it depends on program ids, ranges or such names."""
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Call():
            name = last_name(node.func)
            if name in _PLACES:
                return True
            if name in _VALUES:
                return False
            arguments = node.args[1:] if name == "where" else node.args
            inner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return any(is_index(part, names) for part in (*inner, *arguments))
    parts = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return any(is_index(part, names) for part in parts)


def accumulators(function: ast.FunctionDef) -> Names:
    """Names that start as a constant or a filled tensor and are given new values in a loop."""
    started = {
        name
        for name, value in _bindings(function)
        if last_name(value) in ("zeros", "full")
        or (isinstance(value, ast.Constant) and isinstance(value.value, float))
    }
    updated: set[str] = set()
    for loop in ast.walk(function):
        if isinstance(loop, ast.For | ast.While):
            for node in ast.walk(loop):
                match node:
                    case (
                        ast.Assign(targets=[ast.Name(name)]) | ast.AugAssign(target=ast.Name(name))
                    ):
                        updated.add(name)
                    case _:
                        continue
    return frozenset(started & updated)


def constant_text(value: object) -> str | None:
    """A number near this one as text; None for what is no number, or is exactly a flag."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return str(value + 1)
    return repr(value * 1.01) if value and math.isfinite(value) else "1.0"


def replaced(module: Module, node: ast.expr, other: ast.expr) -> Edit:
    """The text of `other` in place of `node`, in parentheses where that may matter."""
    text = module.segment(other)
    plain = isinstance(other, ast.Name | ast.Constant | ast.Call | ast.Subscript | ast.Slice)
    start, end = module.span(node)
    return Edit(start, end, text if plain else f"({text})")


def wrapped(module: Module, node: ast.expr, before: str, after: str) -> tuple[Edit, ...]:
    """Text put before and after a node, in parentheses of its own where that may matter."""
    start, end = module.span(node)
    if before:
        return Edit(start, start, before), Edit(end, end, after)
    plain = isinstance(node, ast.Name | ast.Call | ast.Subscript | ast.Attribute)
    if plain or after.startswith(" "):
        return (Edit(end, end, after),)
    return Edit(start, start, "("), Edit(end, end, ")" + after)


def between(module: Module, left: ast.expr, right: ast.expr, old: str, new: str) -> Edit:
    """An operator that stands between two operands, replaced."""
    _, start = module.span(left)
    end, _ = module.span(right)
    place = module.source.index(old, start, end)
    return Edit(place, place + len(old), new)


def without_keyword(module: Module, call: ast.Call, name: str) -> Edit | None:
    """The edit that takes a keyword argument and the comma before it out of a call."""
    for keyword in call.keywords:
        if keyword.arg == name and call.args:
            start, end = module.span(keyword.value)
            return Edit(module.source.rindex(",", 0, start), _closed(module, call, end), "")
    return None


def _closed(module: Module, call: ast.Call, position: int) -> int:
    """The end of an argument in parentheses, whose node ends before they close."""
    _, end = module.span(call)
    while (match := _CLOSING.match(module.source, position)) and match.end() < end:
        position = match.end()
    return position
