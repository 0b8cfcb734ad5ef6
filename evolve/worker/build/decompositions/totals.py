"""Sums and means over everything, with the pointwise operations that lead to the terms.

The terms may themselves be computed from sums over rows, as distances of vectors are. Both levels
become text in the terms of Triton: `term` of one element of the tensors a, b and c, `outcome` of a
row's sums.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from evolve.worker.build.decompositions.nodes import (
    FLOATS,
    MIN_ROWS,
    arguments,
    is_call,
    is_dense,
    only_user,
    put,
    value,
)

_MIN_ELEMENTS = 2**16  # elements; one kernel of the compiler's does fewer
_MAX_OPERANDS = 3  # tensors, and sums of a row
_DEEPEST = 64  # operations in a row; each is a few calls in each other here
_UNARY = {
    **{name: f"tl.{name}({{0}})" for name in ("abs", "exp", "log", "sqrt", "rsqrt", "sigmoid")},
    "neg": "-{0}",
    "relu": "tl.where({0} < 0, 0.0, {0})",
    "reciprocal": "1.0 / {0}",
    "square": "{0} * {0}",
    "isnan": "{0} != {0}",
    "clone": "{0}",
}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">"}
_SIGNS |= {"ge": ">=", "eq": "==", "ne": "!="}
_TEXTS: Mapping[str, str] = {
    **{f"aten.{name}.default": text for name, text in _UNARY.items()},
    **{
        f"aten.{name}.{kind}": f"{{0}} {sign} {{1}}"
        for name, sign in _SIGNS.items()
        for kind in ("Tensor", "Scalar")
    },
    "aten.rsub.Scalar": "{1} - {0}",
    "aten.where.self": "tl.where({0}, {1}, {2})",
    "aten.clamp_min.default": "tl.where({0} < {1}, {1}, {0})",
    "aten.clamp_max.default": "tl.where({0} > {1}, {1}, {0})",
}
"""Of operations; comparisons keep NaN, as torch does."""


def keep_totals(graph: Any) -> None:
    """Replace each that is recognised."""
    for node in list(graph.nodes):
        if is_call(node, "mean.default", "sum.default"):
            _keep(graph, node)


def _keep(graph: Any, node: Any) -> None:
    given = arguments(node)
    summed, out = value(given["self"]), value(node)
    if summed is None or out is None or given["dtype"] is not None or out.dtype not in FLOATS:
        return
    found = _by_rows(given["self"]) or _flat(given["self"])
    if found is None:
        return
    tensors, term, outcome, shape = found
    first = value(tensors[0])
    if first is None or first.dtype != out.dtype or math.prod(shape) < _MIN_ELEMENTS:
        return
    scale = 1 / summed.numel() if is_call(node, "mean.default") else 1.0
    node, scale = _scaled(node, scale)
    padded = [*tensors, *[None] * (_MAX_OPERANDS - len(tensors))]
    put(graph, node, torch.ops.evolve.total.default, *padded, term, outcome, list(shape), scale)


def _scaled(node: Any, scale: float) -> tuple[Node, float]:
    """With the multiplication by a number that follows, if one does."""
    user = only_user(node)
    if is_call(user, "div.Tensor", "mul.Tensor", "div.Scalar", "mul.Scalar"):
        assert user is not None
        factor = user.args[1]
        if user.args[0] is node and isinstance(factor, int | float) and factor and not user.kwargs:
            return user, scale / factor if "div" in str(user.target) else scale * factor
    return node, scale


Found = tuple[Sequence[Any], str, str, Sequence[int]]


def _flat(summed: Any) -> Found | None:
    tensor = value(summed)
    assert tensor is not None
    terms = _Terms(tensor.shape)
    name = terms.of(summed)
    if name is None or not terms.lines or not terms.tensors:
        return None
    return terms.tensors, terms.text(name), "", tensor.shape


def _by_rows(summed: Any) -> Found | None:
    outer = _Outcome(summed)
    name = outer.of(summed)
    if name is None or not outer.sums or len(outer.sums) > _MAX_OPERANDS:
        return None
    shapes = {tuple(tensor.shape) for one in outer.sums if (tensor := value(one)) is not None}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    if math.prod(shape[:-1]) < MIN_ROWS:
        return None
    terms = _Terms(shape)
    names = [terms.of(one) for one in outer.sums]
    if None in names or not terms.tensors:
        return None
    unused = ["0.0"] * (_MAX_OPERANDS - len(names))
    text = terms.text(", ".join([*(str(one) for one in names), *unused]))
    return terms.tensors, text, outer.text(name), shape


class _Lines:
    """Statements for the computation of nodes.

    Attributes:
        lines: of the statements, each of which names one value.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[Any, str | None] = {}
        self._depth = 0

    def of(self, node: Any) -> str | None:
        """The name of a node's value; None if nothing here computes it."""
        if isinstance(node, int | float):
            return repr(float(node)) if math.isfinite(node) else f'float("{node}")'
        if not isinstance(node, Node):
            return None
        if node not in self._names:
            self._depth += 1
            self._names[node] = self._constant(node) or self._taken(node) or self._computed(node)
            self._depth -= 1
        return self._names[node]

    def text(self, result: str) -> str:
        return "\n".join([*self.lines, f"return {result}"])

    def _constant(self, node: Any) -> str | None:
        if is_call(node, "scalar_tensor.default", "full.default"):
            number = node.args[0] if is_call(node, "scalar_tensor.default") else node.args[1]
            return self.of(number) if isinstance(number, int | float) else None
        return None

    def _taken(self, node: Any) -> str | None:
        """The name of an existing value."""
        raise NotImplementedError

    def _computed(self, node: Any) -> str | None:
        if node.kwargs or node.op != "call_function" or self._depth > _DEEPEST:
            return None
        if str(node.target) == "prims.convert_element_type.default":
            source = value(node.args[0])
            is_float = node.args[1] in FLOATS and source is not None and source.dtype in FLOATS
            return self.of(node.args[0]) if is_float else None
        if is_call(node, "pow.Tensor_Scalar"):
            text = {2: "{0} * {0}", 0.5: "tl.sqrt({0})"}.get(node.args[1])
            given = node.args[:1]
        else:
            text, given = _TEXTS.get(str(node.target)), node.args
        # A third argument of a sum of two would be a factor.
        if text is None or f"{{{len(given) - 1}}}" not in text:
            return None
        values = [self.of(argument) for argument in given]
        return None if None in values else self._line(text.format(*values))

    def _line(self, text: str) -> str:
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name


class _Terms(_Lines):
    """Of elements of tensors that are broadcast to a shape.

    Attributes:
        tensors: those, called a, b, c in their order.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self._shape = tuple(shape)
        self.tensors: list[Any] = []
        self._failed: dict[Any, int] = {}  # nodes, and how many tensors there were by then

    def _taken(self, node: Any) -> str | None:
        return None  # computed values are not read

    def _computed(self, node: Any) -> str | None:
        lines, tensors, names = len(self.lines), len(self.tensors), dict(self._names)
        if self._failed.get(node, _MAX_OPERANDS + 1) <= tensors:
            return None  # nor would it do now; else each way that leads to it were walked again
        name = super()._computed(node)
        if name is None:  # nor is anything that only this would have needed
            del self.lines[lines:], self.tensors[tensors:]
            self._names = names
            name = self._read(node)
        if name is None:
            self._failed[node] = tensors
        return name

    def _read(self, node: Any) -> str | None:
        if len(self.tensors) == _MAX_OPERANDS or not is_dense(node) or not self._fits(node):
            return None
        self.tensors.append(node)
        return "abc"[len(self.tensors) - 1]

    def _fits(self, node: Any) -> bool:
        """Whether it is as large as the shape, or has one element a row or a column, or one."""
        tensor = value(node)
        assert tensor is not None
        shape = (1,) * (len(self._shape) - tensor.dim()) + tuple(tensor.shape)
        rows, columns = self._shape[:-1], self._shape[-1:]
        ones = (1,) * len(rows)
        return shape in (self._shape, (*rows, 1), ones + columns, (*ones, 1))


class _Outcome(_Lines):
    """Of sums over the last dimension, called a, b, c.

    Attributes:
        sums: the terms, in order.
    """

    def __init__(self, summed: Any) -> None:
        super().__init__()
        tensor = value(summed)
        self._count = tensor.numel() if tensor is not None else 0
        self.sums: list[Any] = []

    def _taken(self, node: Any) -> str | None:
        tensor = value(node)
        if tensor is None or tensor.numel() != self._count:
            return None
        if is_call(node, "view.default", "squeeze.dim", "squeeze.dims", "unsqueeze.default"):
            return self.of(node.args[0])
        if not is_call(node, "sum.dim_IntList", "mean.dim"):
            return None
        given = arguments(node)
        source = value(given["self"])
        if source is None or not source.dim() or given["dtype"] is not None or not given["dim"]:
            return None
        if [dim % source.dim() for dim in given["dim"]] != [source.dim() - 1]:
            return None
        self.sums.append(given["self"])
        name = "abc"[len(self.sums) - 1] if len(self.sums) <= _MAX_OPERANDS else None
        if name and is_call(node, "mean.dim"):
            return self._line(f"{name} / {source.shape[-1]}")
        return name
