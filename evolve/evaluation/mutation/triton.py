"""Mutants of Triton kernels, from the syntax tree of functions under `@triton.jit`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from evolve.core.source.pytext import Edit, Module
from evolve.evaluation.mutation.launch import launch_changes
from evolve.evaluation.mutation.mutant import Change, Kind
from evolve.evaluation.mutation.pytree import (
    Names,
    accumulators,
    between,
    constant_text,
    index_names,
    is_index,
    last_name,
    replaced,
    without_keyword,
    wrapped,
)

_COMPARED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
_WRITTEN = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
            ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//",
            ast.Mod: "%"}  # fmt: skip
_SWAPPED = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*",
            ast.Mod: "//"}  # fmt: skip
_RENAMED = {"exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log", "max": "min", "min": "max",
            "maximum": "minimum", "minimum": "maximum", "sum": "max", "rsqrt": "sqrt",
            "sin": "cos", "cos": "sin"}  # fmt: skip
_MEMORY = ("load", "store", "atomic_add", "atomic_max", "atomic_min")
_HALF = ".to(tl.float16).to(tl.float32)"
_STRIDE = re.compile(r"(stride_?\w*?)(\w)$")


def triton_changes(module: Module) -> Iterator[Change]:
    """Every change of the module's Triton kernels and of the code that launches them."""
    kernels = [
        node
        for node in module.tree.body
        if isinstance(node, ast.FunctionDef)
        and any(last_name(decorator) == "jit" for decorator in node.decorator_list)
    ]
    for kernel in kernels:
        yield from _Kernel(module, kernel).changes()
    yield from launch_changes(module, {kernel.name for kernel in kernels})


@dataclass(frozen=True)
class _Kernel:
    module: Module
    function: ast.FunctionDef
    indices: Names = field(init=False)
    summed: Names = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", index_names(self.function))
        object.__setattr__(self, "summed", accumulators(self.function))

    def changes(self) -> Iterator[Change]:
        for statement in self.function.body:
            for node in ast.walk(statement):
                yield from self._of(node)

    def _of(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(ops=[_], comparators=[_]):
                yield from self._comparison(node)
            case ast.BinOp():
                yield from self._operation(node)
            case ast.UnaryOp(op=ast.USub()):
                yield self._change(Kind.ARITHMETIC, replaced(self.module, node, node.operand))
            case ast.Call():
                yield from self._call(node)
            case ast.AugAssign(target=ast.Name(name)):
                yield from self._accumulation(node, name)
            case ast.Assign(targets=[ast.Name(name)]):
                yield from self._assignment(node, name)
            case ast.Name(ctx=ast.Load()):
                yield from self._stride(node)
            case ast.Subscript(slice=ast.Tuple(elts=[first, second])):
                yield self._change(
                    Kind.INDEXING,
                    replaced(self.module, first, second), replaced(self.module, second, first),
                )  # fmt: skip
            case _:
                return

    def _change(self, kind: Kind, *edits: Edit) -> Change:
        return Change(kind, edits)

    def _kind_of(self, node: ast.expr) -> Kind:
        return Kind.INDEXING if is_index(node, self.indices) else Kind.ARITHMETIC

    def _comparison(self, node: ast.Compare) -> Iterator[Change]:
        operator, right = type(node.ops[0]), node.comparators[0]
        if operator not in _COMPARED:
            return
        kind = Kind.BOUNDARY if is_index(node, self.indices) else Kind.ARITHMETIC
        yield self._change(
            kind,
            between(self.module, node.left, right, _WRITTEN[operator], _COMPARED[operator]),
        )
        if kind is Kind.BOUNDARY:
            yield self._change(kind, *wrapped(self.module, right, "(", " - 1)"))

    def _operation(self, node: ast.BinOp) -> Iterator[Change]:
        operator = type(node.op)
        if isinstance(node.op, ast.BitAnd):
            yield self._change(Kind.BOUNDARY, replaced(self.module, node, node.left))
            yield self._change(Kind.BOUNDARY, replaced(self.module, node, node.right))
        if operator not in _SWAPPED:
            return
        kind = self._kind_of(node)
        other = _SWAPPED[operator]
        if kind is Kind.INDEXING and isinstance(node.op, ast.Mult):
            other = "+"
        yield self._change(
            kind, between(self.module, node.left, node.right, _WRITTEN[operator], other)
        )
        for side in (node.left, node.right):
            if isinstance(side, ast.Constant) and constant_text(side.value) is not None:
                yield self._change(kind, self._constant(side))

    def _constant(self, node: ast.Constant) -> Edit:
        start, end = self.module.span(node)
        return Edit(start, end, constant_text(node.value) or "")

    def _call(self, node: ast.Call) -> Iterator[Change]:
        name = last_name(node.func)
        if name in _MEMORY and node.args:
            yield from self._access(node, name)
        elif name == "range" and node.args:
            end = node.args[0] if len(node.args) == 1 else node.args[1]
            yield self._change(Kind.BOUNDARY, *wrapped(self.module, end, "(", " - 1)"))
            yield self._change(Kind.BOUNDARY, *wrapped(self.module, end, "(", " + 1)"))
        elif name == "cdiv" and len(node.args) == 2:
            over, by = (self.module.segment(part) for part in node.args)
            yield self._change(Kind.BOUNDARY, self._instead(node, f"(({over}) // ({by}))"))
        elif name == "where" and len(node.args) == 3:
            yield self._change(Kind.BOUNDARY, replaced(self.module, node, node.args[1]))
        elif name == "debug_barrier":
            yield self._change(Kind.SYNCHRONISATION, self._instead(node, "None"))
        elif name == "trans" and node.args:
            yield self._change(Kind.INDEXING, replaced(self.module, node, node.args[0]))
        elif name == "program_id" and node.args:
            yield from self._axis(node.args[0])
        elif name in ("zeros", "full"):
            yield from self._start(node, name)
        yield from self._numeric(node, name)

    def _instead(self, node: ast.expr, text: str) -> Edit:
        return Edit(*self.module.span(node), text)

    def _axis(self, axis: ast.expr) -> Iterator[Change]:
        if isinstance(axis, ast.Constant) and isinstance(axis.value, int):
            other = "1" if axis.value == 0 else "0"
            yield self._change(Kind.INDEXING, self._instead(axis, other))

    def _access(self, node: ast.Call, name: str) -> Iterator[Change]:
        """A load, store or atomic: its mask, what masked lanes get, where it points."""
        keywords = {keyword.arg: keyword for keyword in node.keywords}
        edits = {key: without_keyword(self.module, node, key) for key in ("mask", "other")}
        mask, other = edits["mask"], edits["other"]
        if mask is not None:
            yield self._change(Kind.BOUNDARY, mask, *([other] if other else []))
        if other is not None:
            yield self._change(Kind.INITIALISATION, other)
            wrong = _other_start(keywords["other"].value)
            yield self._change(Kind.INITIALISATION, self._instead(keywords["other"].value, wrong))
        yield self._change(Kind.INDEXING, *wrapped(self.module, node.args[0], "", " + 1"))
        if name == "atomic_add":
            yield self._change(Kind.SYNCHRONISATION, self._renamed(node, name, "store"))
        elif name == "load":
            yield self._change(Kind.PRECISION, *wrapped(self.module, node, "", _HALF))

    def _start(self, node: ast.Call, name: str) -> Iterator[Change]:
        if name == "zeros":
            yield self._change(Kind.INITIALISATION, *wrapped(self.module, node, "(", " + 1)"))
        elif len(node.args) > 1:
            value = node.args[1]
            yield self._change(Kind.INITIALISATION, self._instead(value, _other_start(value)))

    def _renamed(self, node: ast.Call, name: str, other: str) -> Edit:
        _, end = self.module.span(node.func)
        return Edit(end - len(name), end, other)

    def _numeric(self, node: ast.Call, name: str) -> Iterator[Change]:
        if name in _RENAMED:
            yield self._change(Kind.ARITHMETIC, self._renamed(node, name, _RENAMED[name]))
        if name in ("exp", "exp2") and isinstance(node.args[0], ast.BinOp):
            yield from self._unshifted(node.args[0])
        if name == "dot" and len(node.args) >= 2:
            edits = [wrapped(self.module, part, "", ".to(tl.float16)") for part in node.args[:2]]
            yield self._change(Kind.PRECISION, *edits[0], *edits[1])
        if name == "to" and node.args and last_name(node.args[0]) == "float32":
            yield self._change(Kind.PRECISION, *wrapped(self.module, node, "", _HALF))
        for keyword in node.keywords:
            if keyword.arg == "axis":
                yield from self._axis(keyword.value)
            if keyword.arg == "input_precision":
                yield self._change(Kind.PRECISION, self._instead(keyword.value, '"tf32"'))

    def _unshifted(self, argument: ast.BinOp) -> Iterator[Change]:
        """No maximum taken off before the exponential."""
        for node in ast.walk(argument):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
                yield self._change(Kind.PRECISION, replaced(self.module, node, node.left))

    def _accumulation(self, node: ast.AugAssign, name: str) -> Iterator[Change]:
        value = self.module.segment(node.value)
        operator = type(node.op)
        if operator in _SWAPPED and operator in _WRITTEN:
            kind = Kind.INDEXING if name in self.indices else Kind.ARITHMETIC
            sign = _WRITTEN[operator]
            old, new = f"{sign}=", f"{_SWAPPED[operator]}="
            yield self._change(kind, between(self.module, node.target, node.value, old, new))
            if name in self.summed:
                yield self._change(kind, between(self.module, node.target, node.value, old, "="))
                text = f"{name} = ({name} {sign} ({value})){_HALF}"
                start, end = self.module.span(node)
                yield self._change(Kind.PRECISION, Edit(start, end, text))

    def _assignment(self, node: ast.Assign, name: str) -> Iterator[Change]:
        value = node.value
        starts = isinstance(value, ast.Constant) or last_name(value) in ("zeros", "full")
        if isinstance(value, ast.Constant) and isinstance(value.value, float):
            yield self._change(Kind.INITIALISATION, self._constant(value))
        elif name in self.summed and not starts and isinstance(value, ast.BinOp | ast.Call):
            yield self._shortened(value, _HALF)
        match value:
            case ast.BinOp(left=ast.BinOp(op=ast.Sub()), op=ast.Sub(), right=ast.Name()):
                yield self._shortened(value, " * 0.0")

    def _shortened(self, value: ast.expr, by: str) -> Change:
        return self._change(Kind.PRECISION, *wrapped(self.module, value, "(", ")" + by))

    def _stride(self, node: ast.Name) -> Iterator[Change]:
        """Another stride of the same tensor."""
        own = _STRIDE.fullmatch(node.id)
        for parameter in self.function.args.args:
            other = _STRIDE.fullmatch(parameter.arg)
            if own and other and own[1] == other[1] and own[2] != other[2]:
                yield self._change(Kind.INDEXING, self._instead(node, parameter.arg))
                return


def _other_start(value: ast.expr) -> str:
    """What a lane or an accumulator could start with by mistake."""
    zero = isinstance(value, ast.Constant) and value.value == 0
    return "1.0" if zero else "0.0"
