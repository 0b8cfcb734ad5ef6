"""Inductor's own templates of matrix products and convolutions, with their fusions.

Inductor settles blocks, grid and arithmetic when it writes such a kernel; here they are open again.
"""

import ast
import copy
import math
from collections.abc import Mapping, Sequence

from operators.local.inductor.blocks import WARPS, Blocks
from operators.local.inductor.reading import RawKernel

STAGES = "num_stages"
PRECISION = "INPUT_PRECISION"
PRECISIONS = ("bf16x6", "tf32x3", "bf16x3", "ieee")
"""The precisions of `tl.dot` if the task allows float32 only; the first is the default.

These are sums of products of narrower parts, or float32 throughout. Against cuBLAS's own float32
(error 1.1e-6), on an H200 with Triton 3.6 at 4096^3: bf16x6 2.1e-7, tf32x3 2.4e-7, bf16x3 4.4e-6;
ieee uses no tensor cores.
"""
_INEXACT = ("tf32",)  # rounds its operands

# Of the options of Triton's backends: AMD's CDNA 3 alone has tf32, and no AMD device tf32x3.
_ON_AMD = ("bf16x6", "bf16x3", "ieee")
_ON_CDNA3 = (*_INEXACT, *_ON_AMD)

_ALLOW_TF32 = "ALLOW_TF32"
_FLOAT32 = "*fp32"
_MAX_BLOCK = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}
_USUAL = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32}
_MIN_BLOCK = 16  # side of a block that `tl.dot` takes
# Of the templates `mm`, `bmm`, `conv2d` and `conv3d` in torch._inductor.kernel: the sides of the
# product that a block is taken of, and the grid as its file computes it.
_ROWS = "triton.cdiv({rows}, {m})"
_COLUMNS = "triton.cdiv({columns}, {n})"


def precisions(accumulation: str, arch: str = "") -> tuple[str, ...]:
    """The precisions of `tl.dot` for float32.

    Args:
        accumulation: arithmetic that a task allows (`Task.accumulation`).
        arch: of the device; that of AMD's begins with `gfx`.
    """
    wanted = PRECISIONS if accumulation == "ieee" else (*_INEXACT, *PRECISIONS)
    if not arch.startswith("gfx"):
        return wanted
    known = _ON_CDNA3 if arch.startswith("gfx942") else _ON_AMD
    return tuple(precision for precision in wanted if precision in known)


class Product:
    """A kernel of a template.

    One of a template that is not known here, or with a grid that is not that of its file, keeps
    the blocks and the grid that Inductor gave it.

    Args:
        raw: the kernel.
        grid: the numbers that it is launched with.
        precisions: for float32.
    """

    def __init__(self, raw: RawKernel, grid: Sequence[int], precisions: Sequence[str]) -> None:
        self._precisions = tuple(precisions)
        self._settings = raw.settings
        self._numbers = _numbers(raw.function)
        self._body = [node for node in raw.function.body if not _is_early_exit(node)]
        self.parameters = [argument.arg for argument in raw.function.args.args]
        self._sides, self._grid = self._shape()
        if not self._is_launched_with(tuple(grid)):
            self._sides, self._grid = {}, str(tuple(grid))

    def _shape(self) -> tuple[dict[str, int], str]:
        """The sides of the product by the names of their blocks, and the grid as text."""
        known = self._numbers
        if {"OUT_C", "OUT_H", "OUT_W"} <= known.keys():
            rows = math.prod(known.get(n, 1) for n in ("BATCH", "OUT_D", "OUT_H", "OUT_W"))
            columns, depth = known["OUT_C"], known["IN_C"]
            text = f"({_ROWS}, {_COLUMNS}, {known.get('GROUPS', 1)})"
        elif {"M", "N", "K"} <= known.keys():
            rows, columns, depth = known["M"], known["N"], known["K"]
            text = f"({_ROWS} * {_COLUMNS}, {known.get('BATCH', '')})"
        else:
            return {}, ""
        sides = {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": depth}
        return sides, text.format(rows=rows, columns=columns, m="{m}", n="{n}")

    def _is_launched_with(self, grid: tuple[int, ...]) -> bool:
        if not self._sides:
            return False
        known = self._numbers
        computed = _counted(self._grid.format(m=known["BLOCK_M"], n=known["BLOCK_N"]))
        return computed == grid[: len(computed)] and math.prod(grid[len(computed) :]) == 1

    def grid(self, prefix: str) -> str:
        """The grid over tunables of that prefix."""
        return self._grid.format(m=f"{prefix}BLOCK_M", n=f"{prefix}BLOCK_N")

    def tunables(self) -> dict[str, Blocks]:
        """By parameter of the launch."""
        found = {block: self._block(block, size) for block, size in self._sides.items()}
        if self._is_float32():
            found[PRECISION] = Blocks(self._precisions, self._precisions[0])
        elements = math.prod([size for block, size in self._sides.items() if block != "BLOCK_K"])
        found[WARPS] = Blocks((2, 4, 8), 4 if elements < 1 << 20 else 8)
        found[STAGES] = Blocks((2, 3, 4, 5), 3)
        return found

    def _block(self, block: str, size: int) -> Blocks:
        most = max(_MIN_BLOCK, min(_MAX_BLOCK[block], 1 << max(size - 1, 0).bit_length()))
        choices = [1 << k for k in range(_MIN_BLOCK.bit_length() - 1, most.bit_length())]
        if block == "BLOCK_K" and self._numbers.get("EVEN_K"):
            choices = [c for c in choices if size % c == 0] or [self._numbers["BLOCK_K"]]
        return Blocks(tuple(choices), min(choices, key=lambda c: abs(c - _USUAL[block])))

    def _is_float32(self) -> bool:
        meta = self._settings.get("triton_meta")
        signature = meta.get("signature") if isinstance(meta, dict) else None
        first = next(iter(signature.values()), "") if isinstance(signature, dict) else ""
        return first == _FLOAT32 and _ALLOW_TF32 in self._numbers

    def body(self) -> list[ast.stmt]:
        """Statements without the constants that are parameters now."""
        open_now = {*self._sides, *([_ALLOW_TF32] if self._is_float32() else [])}
        rewriter = _Precision() if self._is_float32() else ast.NodeTransformer()
        return [
            rewriter.visit(copy.deepcopy(node))
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
    """The constants at the body's top level: sizes, blocks, and flags as 0 and 1.

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
        raise AssertionError(f"a grid {text}")

    counts = ast.parse(text, mode="eval").body
    assert isinstance(counts, ast.Tuple)
    return tuple(map(value, counts.elts))
