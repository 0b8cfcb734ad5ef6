"""Launches for matrix products."""

import ast
from collections.abc import Callable, Sequence

from operators.local.inductor.blocks import Blocks
from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.operations import packed
from operators.local.templates.operations.matrices import How, Matrices
from operators.local.templates.tensors import Tensor, merged, pointer_of

_TILES_EACH = 2  # for each multiprocessor; with fewer, long sums are cut
_LONG_SUM = 2048
_EVEN_SUM = 256
_TILE = 64

Launches = Callable[[Matrices], tuple[Launch, ...]]
"""Makes the launches of a product, in the place of a call of a vendor's library."""

Way = How | Launches


def launches(
    a: Tensor,
    b: Tensor,
    bias: Tensor | None,
    out: Tensor,
    precisions: Sequence[str],
    multiprocessors: int,
    how: Way = How.PLAIN,
) -> tuple[Launch, ...]:
    """For out = a @ b + bias, of matrices or batches of them; bias is broadcast.

    Args:
        a: rows x depth.
        b: depth x columns.
        bias: of any shape that broadcasts.
        out: rows x columns.
        precisions: of `tl.dot`, the default first.
        multiprocessors: of the device.
        how: The product is computed so, if there is enough to do for that.
    """
    (batch, rows, depth), a_stride = merged(a, 3)
    (_, _, columns), b_stride = merged(b, 3)
    _, out_stride = merged(out, 3)
    product = Matrices(
        pointers=(a.pointer, b.pointer, pointer_of(bias), out.pointer),
        constants={
            "SHAPE": (rows, columns, depth),
            "A_STRIDE": _by_batch(a, a_stride),
            "B_STRIDE": _by_batch(b, b_stride),
            "BIAS_STRIDE": _broadcast(bias),
            "OUT_STRIDE": out_stride,
        },
        batch=batch,
        precisions=precisions,
        multiprocessors=multiprocessors,
    )
    if not isinstance(how, How):
        return how(product)
    if columns == 1:
        return (_vector(product),)
    if rows == 1:
        return (_vector(product.turned),)
    if how is How.EVEN and depth >= _EVEN_SUM:
        return _stream(product)
    if how.is_packed and (found := packed.launches(product, how)):
        return found
    if product.tiles(_TILE) < _TILES_EACH * multiprocessors and depth >= _LONG_SUM:
        return _split(product)
    return (_tiled(product),)


def tile_tunables(product: Matrices) -> dict[str, Blocks]:
    """Sizes of tiles, and how they are computed."""
    rows, columns, depth = product.shape
    return {
        "BLOCK_M": powers(16, 256, rows, 128),
        "BLOCK_N": powers(16, 256, columns, 128),
        "BLOCK_K": powers(16, 64, depth, 32),
        "GROUP_M": one_of(1, 4, 8, first=8),
        "INPUT_PRECISION": one_of(*product.precisions, first=product.precisions[0]),
        "num_warps": one_of(4, 8, first=8 if min(rows, columns) >= _TILE else 4),
        "num_stages": one_of(2, 3, 4, first=3),
    }


def _tiled(product: Matrices) -> Launch:
    return Launch(
        kernel="matmul_kernel",
        grid=f"({product.grid},)",
        pointers=product.pointers,
        constants=product.constants,
        tunables=tile_tunables(product),
    )


def _split(product: Matrices) -> tuple[Launch, ...]:
    """Sums in parts, which a second kernel adds in their order."""
    rows, columns, depth = product.shape
    size = product.batch * rows * columns
    a, b, bias, out = product.pointers
    parts = ast.Name(f"{ast.unparse(out)}_parts", ast.Load())
    number = powers(2, 64, depth // _TILE, 16)
    first = Launch(
        kernel="matmul_split_kernel",
        grid=f"({product.grid}, PARTS)",
        pointers=(a, b, parts),
        constants=product.only("SHAPE", "A_STRIDE", "B_STRIDE"),
        tunables=tile_tunables(product) | {"PARTS": number},
        before=(room(parts, f"(PARTS, {size})", a, "float32"),),
    )
    second = Launch(
        kernel="matmul_parts_kernel",
        grid=f"(triton.cdiv({size}, BLOCK),)",
        pointers=(parts, bias, out),
        constants={**product.only("SHAPE", "BIAS_STRIDE", "OUT_STRIDE"), "SIZE": size},
        tunables={"BLOCK": powers(64, 1024, size, 256)},
        shared=("PARTS",),
    )
    return first, second


def _stream(product: Matrices) -> tuple[Launch, ...]:
    """Even shares of all sums, and the kernel that joins split ones."""
    a, b, bias, out = product.pointers
    parts = ast.Name(f"{ast.unparse(out)}_parts", ast.Load())
    once = product.multiprocessors
    first = Launch(
        kernel="matmul_stream_kernel",
        grid="(PROGRAMS,)",
        pointers=(a, b, bias, parts, out),
        constants={"BATCH": product.batch, **product.constants},
        tunables=tile_tunables(product) | {"PROGRAMS": one_of(once, 2 * once, first=once)},
        before=(room(parts, "(2 * PROGRAMS, BLOCK_M * BLOCK_N)", a, "float32"),),
    )
    second = Launch(
        kernel="stream_parts_kernel",
        grid=f"({product.grid},)",
        pointers=(parts, bias, out),
        constants={"BATCH": product.batch, **product.only("SHAPE", "BIAS_STRIDE", "OUT_STRIDE")},
        tunables={},
        shared=("PROGRAMS", "BLOCK_M", "BLOCK_N", "GROUP_M", "num_warps"),
    )
    return first, second


def _vector(product: Matrices) -> Launch:
    """Of a product of a single column."""
    rows, _, depth = product.shape
    lies_by_rows = product.constants["A_STRIDE"][2] == 1
    return Launch(
        kernel="matvec_kernel",
        grid=f"({product.batch} * triton.cdiv({rows}, BLOCK_M),)",
        pointers=product.pointers,
        constants=product.constants,
        tunables={
            "BLOCK_M": powers(1, 128, rows, 1 if lies_by_rows else 32),
            "BLOCK_K": powers(16, 4096, depth, 2048 if lies_by_rows else 32),
            "num_warps": one_of(2, 4, 8, first=4),
        },
    )


def _by_batch(tensor: Tensor, stride: tuple[int, ...]) -> tuple[int, ...]:
    """One matrix for the whole batch is read again and again."""
    return stride if tensor.shape[0] != 1 or len(tensor.shape) < 3 else (0, *stride[1:])


def _broadcast(bias: Tensor | None) -> tuple[int, ...]:
    if bias is None:
        return (0, 0, 0)
    shape, stride = merged(bias, 3)
    return tuple(0 if size == 1 else step for size, step in zip(shape, stride, strict=True))
