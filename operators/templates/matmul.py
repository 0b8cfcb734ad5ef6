"""Launches for matrix products."""

import ast
from collections.abc import Sequence
from typing import Literal

from operators.inductor.blocks import Blocks
from operators.templates import packed
from operators.templates.launch import Launch, one_of, powers
from operators.templates.tensors import HALF, Tensor, merged

NOTHING = ast.Constant(None)
_TILES_EACH = 2  # for each multiprocessor; with fewer, long sums are cut
_LONG_SUM = 2048
_EVEN_SUM = 256
_TILE = 64

How = Literal["", "even", "packed"]
"""How a product is computed, if it is large enough for that."""


def launches(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    out: Tensor,
    precisions: Sequence[str],
    multiprocessors: int,
    *,
    how: How = "",
) -> tuple[Launch, ...]:
    """For out = a @ b + bias, of matrices or batches of them; bias is broadcast.

    Args:
        a: rows x depth.
        b: depth x columns.
        bias: of any shape that broadcasts.
        out: rows x columns.
        precisions: what `tl.dot` may make of its arguments, the first to begin with.
        multiprocessors: of the device.
        how: `even` cuts the work evenly among as many programs as a device takes at once,
            `packed` the operands into parts beforehand; each where there is enough to do.
    """
    (batch, rows, depth), a_stride = merged(a, 3)
    (_, _, columns), b_stride = merged(b, 3)
    _, out_stride = merged(out, 3)
    pointers = (a.pointer, b.pointer, bias.pointer if bias else NOTHING, out.pointer)
    constants = {
        "SHAPE": (rows, columns, depth),
        "A_STRIDE": _by_batch(a, a_stride),
        "B_STRIDE": _by_batch(b, b_stride),
        "BIAS_STRIDE": _broadcast(bias),
        "OUT_STRIDE": out_stride,
    }
    if columns == 1:
        return (_vector(pointers, constants, batch),)
    if rows == 1:  # out' = b' @ a'
        return (_vector(_swapped(pointers), _transposed(constants), batch),)
    if how == "even" and depth >= _EVEN_SUM:
        return _stream(pointers, constants, batch, precisions, multiprocessors)
    if how == "packed" and tuple(precisions) != HALF:
        found = _packed(pointers, constants, batch, precisions, multiprocessors)
        if found:
            return found
    tiles = batch * -(-rows // _TILE) * -(-columns // _TILE)
    if tiles < _TILES_EACH * multiprocessors and depth >= _LONG_SUM:
        return _split(pointers, constants, batch, precisions)
    return (_tiled(pointers, constants, batch, precisions),)


def tile_tunables(
    rows: int, columns: int, depth: int, precisions: Sequence[str]
) -> dict[str, Blocks]:
    """Sizes of tiles, and how they are computed."""
    return {
        "BLOCK_M": powers(16, 256, rows, 128),
        "BLOCK_N": powers(16, 256, columns, 128),
        "BLOCK_K": powers(16, 64, depth, 32),
        "GROUP_M": one_of(1, 4, 8, first=8),
        "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
        "num_warps": one_of(4, 8, first=8 if min(rows, columns) >= _TILE else 4),
        "num_stages": one_of(2, 3, 4, first=3),
    }


def _packed(
    pointers: tuple[ast.expr, ...],
    constants: dict[str, tuple[int, ...]],
    batch: int,
    precisions: Sequence[str],
    multiprocessors: int,
) -> tuple[Launch, ...]:
    """Of operands that are cut; nothing where that does not pay."""
    rows, columns, depth = constants["SHAPE"]
    if packed.pays(rows, columns, depth, batch, multiprocessors):
        grid = _count(batch, rows, columns)
        return packed.launches(pointers, constants, batch, grid, precisions)
    if rows < columns:  # out' = b' @ a'
        pointers, constants = _swapped(pointers), _transposed(constants)
        rows, columns = columns, rows
    if batch == 1 and packed.is_narrow(rows, columns, depth, multiprocessors):
        return packed.narrow(pointers, constants, _count(1, rows, columns), precisions)
    return ()


def _tiled(
    pointers: tuple[ast.expr, ...],
    constants: dict[str, tuple[int, ...]],
    batch: int,
    precisions: Sequence[str],
) -> Launch:
    rows, columns, depth = constants["SHAPE"]
    return Launch(
        kernel="matmul_kernel",
        grid=f"({_count(batch, rows, columns)},)",
        pointers=pointers,
        constants=constants,
        tunables=tile_tunables(rows, columns, depth, precisions),
    )


def _split(
    pointers: tuple[ast.expr, ...],
    constants: dict[str, tuple[int, ...]],
    batch: int,
    precisions: Sequence[str],
) -> tuple[Launch, ...]:
    """Sums in parts, which a second kernel adds in their order."""
    rows, columns, depth = constants["SHAPE"]
    size = batch * rows * columns
    a, b, bias, out = pointers
    parts = ast.Name(f"{ast.unparse(out)}_parts", ast.Load())
    number = powers(2, 64, depth // _TILE, 16)
    place = f"device={ast.unparse(a)}.device, dtype=torch.float32"
    kept = ("SHAPE", "A_STRIDE", "B_STRIDE")
    first = Launch(
        kernel="matmul_split_kernel",
        grid=f"({_count(batch, rows, columns)}, PARTS)",
        pointers=(a, b, parts),
        constants={name: constants[name] for name in kept},
        tunables=tile_tunables(rows, columns, depth, precisions) | {"PARTS": number},
        before=(f"{ast.unparse(parts)} = torch.empty((PARTS, {size}), {place})",),
    )
    second = Launch(
        kernel="matmul_parts_kernel",
        grid=f"(triton.cdiv({size}, BLOCK),)",
        pointers=(parts, bias, out),
        constants={name: constants[name] for name in ("SHAPE", "BIAS_STRIDE", "OUT_STRIDE")}
        | {"SIZE": size},
        tunables={"BLOCK": powers(64, 1024, size, 256)},
        shared=("PARTS",),
    )
    return first, second


def _stream(
    pointers: tuple[ast.expr, ...],
    constants: dict[str, tuple[int, ...]],
    batch: int,
    precisions: Sequence[str],
    multiprocessors: int,
) -> tuple[Launch, ...]:
    """Even shares of all sums, and what joins those that were cut."""
    rows, columns, depth = constants["SHAPE"]
    a, b, bias, out = pointers
    parts = ast.Name(f"{ast.unparse(out)}_parts", ast.Load())
    place = f"device={ast.unparse(a)}.device, dtype=torch.float32"
    shares = one_of(multiprocessors, 2 * multiprocessors, first=multiprocessors)
    first = Launch(
        kernel="matmul_stream_kernel",
        grid="(PROGRAMS,)",
        pointers=(a, b, bias, parts, out),
        constants={"BATCH": batch, **constants},
        tunables=tile_tunables(rows, columns, depth, precisions) | {"PROGRAMS": shares},
        before=(f"{ast.unparse(parts)} = torch.empty((2 * PROGRAMS, BLOCK_M * BLOCK_N), {place})",),
    )
    kept = ("SHAPE", "BIAS_STRIDE", "OUT_STRIDE")
    second = Launch(
        kernel="stream_parts_kernel",
        grid=f"({_count(batch, rows, columns)},)",
        pointers=(parts, bias, out),
        constants={"BATCH": batch} | {name: constants[name] for name in kept},
        tunables={},
        shared=("PROGRAMS", "BLOCK_M", "BLOCK_N", "GROUP_M", "num_warps"),
    )
    return first, second


def _vector(
    pointers: tuple[ast.expr, ...], constants: dict[str, tuple[int, ...]], batch: int
) -> Launch:
    rows, _, depth = constants["SHAPE"]
    lies_by_rows = constants["A_STRIDE"][2] == 1
    return Launch(
        kernel="matvec_kernel",
        grid=f"({batch} * triton.cdiv({rows}, BLOCK_M),)",
        pointers=pointers,
        constants=constants,
        tunables={
            "BLOCK_M": powers(1, 128, rows, 1 if lies_by_rows else 32),
            "BLOCK_K": powers(16, 4096, depth, 2048 if lies_by_rows else 32),
            "num_warps": one_of(2, 4, 8, first=4),
        },
    )


def _count(batch: int, rows: int, columns: int) -> str:
    tiles = f"triton.cdiv({rows}, BLOCK_M) * triton.cdiv({columns}, BLOCK_N)"
    return tiles if batch == 1 else f"{batch} * {tiles}"


def _by_batch(tensor: Tensor, stride: tuple[int, ...]) -> tuple[int, ...]:
    """One matrix for the whole batch is read again and again."""
    return stride if tensor.shape[0] != 1 or len(tensor.shape) < 3 else (0, *stride[1:])


def _broadcast(bias: Tensor | None) -> tuple[int, ...]:
    if bias is None:
        return (0, 0, 0)
    shape, stride = merged(bias, 3)
    return tuple(0 if size == 1 else step for size, step in zip(shape, stride, strict=True))


def _swapped(pointers: tuple[ast.expr, ...]) -> tuple[ast.expr, ...]:
    a, b, bias, out = pointers
    return b, a, bias, out


def _transposed(constants: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    rows, columns, depth = constants["SHAPE"]

    def turned(name: str) -> tuple[int, ...]:
        batch, row, column = constants[name]
        return batch, column, row

    return {
        "SHAPE": (columns, rows, depth),
        "A_STRIDE": turned("B_STRIDE"),
        "B_STRIDE": turned("A_STRIDE"),
        "BIAS_STRIDE": turned("BIAS_STRIDE"),
        "OUT_STRIDE": turned("OUT_STRIDE"),
    }
