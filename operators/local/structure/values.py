"""The values of names in straight-line code: whether two expressions are equal."""

import ast
from collections.abc import Mapping

from operators.local.structure.program import names

_INDICES = frozenset(("tl.arange", "tl.program_id", "tl.broadcast_to", "tl.full"))
_PARTS = (
    *(ast.BinOp, ast.UnaryOp, ast.Compare, ast.Constant, ast.Name, ast.Subscript, ast.Slice),
    *(ast.Tuple, ast.List, ast.Call, ast.Attribute, ast.operator, ast.unaryop, ast.cmpop),
    *(ast.expr_context, ast.keyword),
)


class Values:
    """Expansions of indices, masks and sizes down to parameters and constants.

    A value that is loaded, or computed from a loaded one, has an identity of its own, given by the
    name and the number of its assignment. So equal expansions mean equal values.
    """

    def __init__(self) -> None:
        self._known: dict[str, ast.expr] = {}
        self._times: dict[str, int] = {}

    def assign(self, name: str, value: ast.expr | None) -> None:
        """The name stands for the value from here on; None for one that nothing is known of."""
        expanded = value and self.expanded(value)
        self._times[name] = self._times.get(name, 0) + 1
        if expanded and _is_index(expanded):
            self._known[name] = expanded
        else:
            self._known[name] = ast.Name(f"{name}@{self._times[name]}", ast.Load())

    def bind(self, name: str, other: str) -> None:
        """From now on the name has the value that the other one has."""
        self._known[name] = self._known.get(other, ast.Name(other, ast.Load()))

    def expanded(self, expression: ast.expr) -> ast.expr:
        """The expression with names replaced by their values."""
        copied = ast.parse(ast.unparse(expression), mode="eval").body
        expanded: ast.expr = _Expansion(self._known).visit(copied)
        return expanded

    def text(self, expression: ast.expr) -> str:
        """The same as text; equal for expressions that give the same."""
        return ast.unparse(self.expanded(expression))


def _is_index(expression: ast.expr) -> bool:
    """Whether it is made of program numbers, ranges and constants only."""
    for node in ast.walk(expression):
        if not isinstance(node, _PARTS):
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _INDICES:
            return False
    return not any("@" in name for name in names(expression))


class _Expansion(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._known.get(node.id, node)
