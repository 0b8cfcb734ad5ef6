"""Inductor's own templates of matrix products and convolutions, with what it fused into them.

Inductor settles blocks, grid and arithmetic when it writes such a kernel; here they are open again.
"""

import ast
import math
from collections.abc import Mapping, Sequence

from operators.inductor.blocks import WARPS, Blocks
from operators.inductor.reading import NotConvertible, RawKernel

STAGES = "num_stages"
PRECISION = "INPUT_PRECISION"
PRECISIONS = ("tf32x3", "bf16x6", "bf16x3", "ieee")
"""What `tl.dot` may make of float32 where the task allows float32 only; the first to begin with."""

_ALLOW_TF32 = "ALLOW_TF32"
_FLOAT32 = "*fp32"
_LARGEST = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}
_USUAL = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
_SMALLEST = 16  # side of a block that `tl.dot` takes
# Of the templates `mm`, `bmm`, `conv2d` and `conv3d` in torch._inductor.kernel: the sides of the
# product that a block is taken of, and the grid as its file computes it.
_ROWS = "triton.cdiv({rows}, {m})"
_COLUMNS = "triton.cdiv({columns}, {n})"


class Product:
    """A kernel of a template.

    Args:
        raw: the kernel.
        grid: the numbers that it is launched with.
        precisions: for float32.

    Raises:
        NotConvertible: the template is an unknown one.
    """

    def __init__(self, raw: RawKernel, grid: Sequence[int], precisions: Sequence[str]) -> None:
        self._precisions = tuple(precisions)
        self._name = raw.function.name
        self._settings = raw.settings
        self._numbers = _numbers(raw.function)
        self._body = [node for node in raw.function.body if not _is_early_exit(node)]
        self.parameters = [argument.arg for argument in raw.function.args.args]
        self._rows, self._columns, self._grid = self._shape(tuple(grid))

    def _shape(self, grid: tuple[int, ...]) -> tuple[int, int, str]:
        """Rows and columns of the product, and the grid as text."""
        known = self._numbers
        if {"OUT_C", "OUT_H", "OUT_W"} <= known.keys():
            rows = math.prod(known.get(n, 1) for n in ("BATCH", "OUT_D", "OUT_H", "OUT_W"))
            columns, third = known["OUT_C"], known.get("GROUPS", 1)
            text = f"({_ROWS}, {_COLUMNS}, {third})"
        elif {"M", "N", "K"} <= known.keys():
            rows, columns = known["M"], known["N"]
            text = f"({_ROWS} * {_COLUMNS}, {known.get('BATCH', '')})"
        else:
            raise NotConvertible(f"{self._name} is of an unknown template")
        text = text.format(rows=rows, columns=columns, m="{m}", n="{n}")
        computed = _counted(text.format(m=known["BLOCK_M"], n=known["BLOCK_N"]))
        if computed != grid[: len(computed)] or math.prod(grid[len(computed) :]) != 1:
            raise NotConvertible(f"{self._name} has a grid of its own")
        return rows, columns, text

    def grid(self, prefix: str) -> str:
        """The grid over tunables of that prefix."""
        return self._grid.format(m=f"{prefix}BLOCK_M", n=f"{prefix}BLOCK_N")

    def tunables(self) -> dict[str, Blocks]:
        """By parameter of the launch."""
        sides = {"BLOCK_M": self._rows, "BLOCK_N": self._columns, "BLOCK_K": self._depth()}
        found = {block: self._block(block, size) for block, size in sides.items()}
        if self._is_float32():
            found[PRECISION] = Blocks(self._precisions, self._precisions[0])
        found[WARPS] = Blocks((2, 4, 8), 4 if self._rows * self._columns < 1 << 20 else 8)
        found[STAGES] = Blocks((2, 3, 4, 5), 3)
        return found

    def _block(self, block: str, size: int) -> Blocks:
        most = max(_SMALLEST, min(_LARGEST[block], 1 << max(size - 1, 0).bit_length()))
        choices = [1 << k for k in range(_SMALLEST.bit_length() - 1, most.bit_length())]
        if block == "BLOCK_K" and self._numbers.get("EVEN_K"):
            choices = [c for c in choices if size % c == 0] or [self._numbers["BLOCK_K"]]
        return Blocks(tuple(choices), min(choices, key=lambda c: abs(c - _USUAL[block])))

    def _depth(self) -> int:
        return self._numbers["K" if "K" in self._numbers else "IN_C"]

    def _is_float32(self) -> bool:
        meta = self._settings.get("triton_meta")
        signature = meta.get("signature") if isinstance(meta, dict) else None
        first = next(iter(signature.values()), "") if isinstance(signature, dict) else ""
        return first == _FLOAT32 and _ALLOW_TF32 in self._numbers

    def body(self) -> list[ast.stmt]:
        """Statements without the constants that are parameters now."""
        open_now = {*_LARGEST, *([_ALLOW_TF32] if self._is_float32() else [])}
        rewriter = _Precision() if self._is_float32() else ast.NodeTransformer()
        return [
            rewriter.visit(node)
            for node in self._body
            if not (isinstance(node, ast.AnnAssign) and ast.unparse(node.target) in open_now)
        ]


class _Precision(ast.NodeTransformer):
    """`tl.dot(a, b, input_precision=INPUT_PRECISION)` for `allow_tf32=ALLOW_TF32`."""

    def visit_keyword(self, node: ast.keyword) -> ast.keyword:
        if node.arg == "allow_tf32":
            return ast.keyword("input_precision", ast.Name(PRECISION, ast.Load()))
        return node


def _numbers(function: ast.FunctionDef) -> Mapping[str, int]:
    """What the body states at its top level: sizes, blocks, and flags as 0 and 1.

    Sizes of large tensors are `tl.full([], 2048, dtype=tl.int64)`.
    """
    found: dict[str, int] = {}
    for node in function.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() as value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=int() as value))
                | ast.Assign(
                    targets=[ast.Name(id=name)],
                    value=ast.Call(args=[ast.List(elts=[]), ast.Constant(value=int() as value)]),
                )
            ):
                found[name] = int(value)
    return found


def _is_early_exit(node: ast.stmt) -> bool:
    """`if M * N == 0: return`, which never holds: sizes are known."""
    return isinstance(node, ast.If) and [type(n) for n in node.body] == [ast.Return]


def _counted(text: str) -> tuple[int, ...]:
    """The numbers of a grid without names."""

    def value(node: ast.expr) -> int:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return value(left) * value(right)
            case ast.Call(args=[size, block]):
                return -(-value(size) // value(block))
        raise NotConvertible(f"a grid {text}")

    counts = ast.parse(text, mode="eval").body
    assert isinstance(counts, ast.Tuple)
    return tuple(map(value, counts.elts))
