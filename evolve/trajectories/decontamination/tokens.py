"""A model as tokens of its computation, independent of spelling.

Without the names of variables, of attributes of `self`, of functions and classes; without numbers,
docstrings and annotations; without the usual first lines of a module of torch. An import counts by
its original name, independent of its path: `F.relu`, `torch.relu` and `relu` are one.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

_SIGNS = (ast.UAdd, ast.USub)


def imported_names(tree: ast.Module) -> dict[str, str]:
    """A module's names for its imports, and the original names."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(one.asname or one.name).partition(".")[0]: one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name: one.name for one in node.names}
    return found


def tokens_of(models: Iterable[ast.AST], imported: Mapping[str, str]) -> Iterator[str]:
    """Kinds of nodes in order, with the names of imported objects.

    Args:
        models: the classes and functions of a task file that make no inputs.
        imported: the result of `imported_names` for the file.
    """
    pending = [*models][::-1]
    while pending:
        node = pending.pop()
        if _says_nothing(node):
            continue
        if (name := _outer_name(node, imported)) is not None:
            yield f"imported {name}"
            continue
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, _SIGNS) and _is_number(node):
            node = node.operand
        yield type(node).__name__
        if isinstance(node, ast.Attribute) and not _is_self(node.value):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        pending.extend(reversed(list(_children(node))))


def _is_number(node: ast.UnaryOp) -> bool:
    return isinstance(node.operand, ast.Constant)


def _is_self(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _outer_name(node: ast.AST, imported: Mapping[str, str]) -> str | None:
    """The original of a name or a dotted path that is imported; None for others."""
    if isinstance(node, ast.Name):
        return imported.get(node.id)
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    is_path = isinstance(root, ast.Name) and root.id in imported
    return node.attr if is_path and isinstance(node, ast.Attribute) else None


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Parts of a node in order, without annotations."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        parts = value if isinstance(value, list) else [value]
        yield from (part for part in parts if isinstance(part, ast.AST))


def _says_nothing(node: ast.AST) -> bool:
    """A docstring, `pass`, the call of the base class's constructor, or a constructor of these."""
    match node:
        case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Expr(
            value=ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__init__")
            )
        ):
            return True
        case ast.FunctionDef(name="__init__", args=ast.arguments(args=[_]), body=body):
            return all(map(_says_nothing, body))
    return False
