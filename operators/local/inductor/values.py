"""Names of a kernel's values: after the tensor that they are loaded from, or counted from 0."""

import ast
import re
from collections.abc import Sequence

_NUMBERED = re.compile(r"^(_?tmp)(\d+)")
_POINTER = "_ptr"


def named(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The body with other names: `x` for `tmp83` where that is loaded from `x_ptr`."""
    found = _identifiers(body)
    loaded: dict[str, str] = {}
    taken = set(found)
    for name, pointer in _loads(body):
        wanted = pointer.removesuffix(_POINTER)
        if pointer.endswith(_POINTER) and wanted.isidentifier() and wanted not in taken:
            loaded[name] = wanted
            taken.add(wanted)
    numbers: dict[str, str] = {}
    for name in found:
        if name not in loaded and (match := _NUMBERED.match(name)):
            numbers.setdefault(match[2], str(len(numbers)))
    renamed = {
        name: _NUMBERED.sub(lambda match: match[1] + numbers[match[2]], name)
        for name in found
        if name not in loaded and _NUMBERED.match(name)
    }
    renaming = _Renaming(renamed | loaded)
    return [renaming.visit(node) for node in body]


def is_copy(body: Sequence[ast.stmt]) -> bool:
    """Whether a kernel only copies elements, and computes nothing but places."""
    loaded = {name for name, _ in _loads(body)}
    stored = [
        ast.unparse(node.args[1])
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store"
    ]
    return bool(stored) and set(stored) <= loaded


def _loads(body: Sequence[ast.stmt]) -> list[tuple[str, str]]:
    """Numbered names that are assigned once, loads with the name of their tensor."""
    found = []
    times: dict[str, int] = {}
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                times[name] = times.get(name, 0) + 1
        match node:
            case ast.Assign([ast.Name(id=name)], ast.Call() as call) if _NUMBERED.match(name):
                if pointer := _loaded_from(call):
                    found.append((name, pointer))
    return [(name, pointer) for name, pointer in found if times[name] == 1]


def _loaded_from(call: ast.Call) -> str:
    """The pointer of a load, perhaps with a cast; empty for anything else."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="to")):
            return _loaded_from(inner)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="tl"), attr="load"),
            args=[ast.BinOp(left=ast.Name(id=pointer)), *_],
        ):
            return pointer
    return ""


def _identifiers(body: Sequence[ast.stmt]) -> list[str]:
    """In the order of the text."""
    names = [
        (node.lineno, node.col_offset, node.id)
        for node in ast.walk(ast.parse("\n".join(map(ast.unparse, body))))
        if isinstance(node, ast.Name)
    ]
    return list(dict.fromkeys(name for _, _, name in sorted(names)))


class _Renaming(ast.NodeTransformer):
    def __init__(self, new: dict[str, str]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._new.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        """Messages of assertions have names in them."""
        if not isinstance(node.value, str):
            return node
        text = re.sub(r"\w+", lambda match: self._new.get(match[0], match[0]), node.value)
        return ast.Constant(text)
