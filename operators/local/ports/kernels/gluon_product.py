"""A product of matrices by the tensor cores of Hopper, in Gluon.

Operands are read to registers, cut into PARTS parts in fp16 or bf16 (a float32 into two or three,
of which each is the remainder of the one before), and multiplied from shared memory by `wgmma`. Of
the products of parts those too small to matter are left out; the others are added from the smallest
on, and their sum to the total outside, since tensor cores cut off low bits of their sums.
Constants are those of `matmul_kernel` (`operators.local.templates.kernels.matmul`).
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.constexpr_function
def side_by_side(rows, columns, is_row_major, warps):
    """A layout in which neighbouring threads have four elements each that lie side by side."""
    if is_row_major:
        across = min(columns // 4, 32)
        return gl.BlockedLayout([1, 4], [32 // across, across], [warps, 1], [1, 0])
    across = min(rows // 4, 32)
    return gl.BlockedLayout([4, 1], [across, 32 // across], [1, warps], [0, 1])


@gluon.constexpr_function
def accumulator(rows, columns, warps):
    """A layout for sums; four warps multiply 64 rows."""
    above = 4 * min(warps // 4, rows // 64)
    across = warps // above
    shape = [16, min(columns // across, 256), 16]
    return gl.NVMMADistributedLayout([3, 0], [above, across], shape)


@gluon.jit
def block_corner(
    tile,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    GROUP_M: gl.constexpr,
):
    """Row and column of a block's first element; GROUP_M rows of blocks are taken at a time."""
    first = tile // (GROUP_M * COLUMNS) * GROUP_M
    height = gl.minimum(ROWS - first, GROUP_M)
    place = tile % (GROUP_M * COLUMNS)
    return (first + place % height) * BLOCK_M, place // height * BLOCK_N


@gluon.jit
def read_block(
    ptr,
    row,
    column,
    ROWS: gl.constexpr,
    COLUMNS: gl.constexpr,
    ROW_STRIDE: gl.constexpr,
    COLUMN_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    layout: gl.constexpr,
):
    """A block of a matrix of ROWS x COLUMNS, with zeros outside."""
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
    columns = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, layout))
    mask = (rows < ROWS)[:, None] & (columns < COLUMNS)[None, :]
    at = rows.to(gl.int64)[:, None] * ROW_STRIDE + columns.to(gl.int64)[None, :] * COLUMN_STRIDE
    return gl.load(ptr + at, mask, other=0.0)


@gluon.jit
def write_parts(value, parts, PARTS: gl.constexpr):
    """Each part is the remainder of those before it."""
    for part in gl.static_range(PARTS):
        rounded = value.to(parts.dtype)
        parts.index(part).store(rounded)
        if part + 1 < PARTS:
            value = value - rounded.to(gl.float32)


@gluon.jit
def multiply_parts(a, b, total, PARTS: gl.constexpr):
    """Adds a @ b to the total: the sum of the products of parts that are not too small."""
    if PARTS == 1:
        return warpgroup_mma(a.index(0), b.index(0), total)
    small = warpgroup_mma(a.index(0), b.index(PARTS - 1), total, use_acc=False, is_async=True)
    for skipped in gl.static_range(PARTS - 1):
        for part in gl.static_range(PARTS - skipped):
            if skipped + part > 0:
                small = warpgroup_mma(
                    a.index(part), b.index(PARTS - 1 - skipped - part), small, is_async=True
                )
    small = warpgroup_mma_wait(0, deps=(small,))
    # inf - inf is NaN; the product of the first parts carries the infinity
    small = gl.where(small != small, 0.0, small)
    return total + warpgroup_mma(a.index(0), b.index(0), small)


@gluon.jit
def write_sums(
    total,
    bias_ptr,
    out_ptr,
    matrix,
    row,
    column,
    SHAPE: gl.constexpr,
    BIAS_STRIDE: gl.constexpr,
    OUT_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
):
    """Stores a block of the result, with the bias."""
    of_out: gl.constexpr = side_by_side(BLOCK_M, BLOCK_N, OUT_STRIDE[2] == 1, gl.num_warps())
    value = gl.convert_layout(total, of_out)
    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, of_out))
    columns = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, of_out))
    mask = (rows < SHAPE[0])[:, None] & (columns < SHAPE[1])[None, :]
    down, along = rows.to(gl.int64)[:, None], columns.to(gl.int64)[None, :]
    if bias_ptr is not None:
        at = matrix * BIAS_STRIDE[0] + down * BIAS_STRIDE[1] + along * BIAS_STRIDE[2]
        value += gl.load(bias_ptr + at, mask, other=0.0).to(gl.float32)
    at = matrix * OUT_STRIDE[0] + down * OUT_STRIDE[1] + along * OUT_STRIDE[2]
    gl.store(out_ptr + at, value, mask)


@gluon.jit
def product_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
    SHAPE: gl.constexpr,
    A_STRIDE: gl.constexpr,
    B_STRIDE: gl.constexpr,
    BIAS_STRIDE: gl.constexpr,
    OUT_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    PARTS: gl.constexpr,
):
    """Computes a @ b + bias for every matrix of a batch. SHAPE is (rows, columns, depth)."""
    ROWS: gl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: gl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    warps: gl.constexpr = gl.num_warps()
    of_a: gl.constexpr = side_by_side(BLOCK_M, BLOCK_K, A_STRIDE[2] == 1, warps)
    of_b: gl.constexpr = side_by_side(BLOCK_K, BLOCK_N, B_STRIDE[2] == 1, warps)
    sums: gl.constexpr = accumulator(BLOCK_M, BLOCK_N, warps)
    kind: gl.constexpr = gl.bfloat16 if PARTS > 1 else a_ptr.dtype.element_ty
    a_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_M, BLOCK_K], kind)
    b_shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_K, BLOCK_N], kind)
    a_parts = gl.allocate_shared_memory(kind, [PARTS, BLOCK_M, BLOCK_K], a_shared)
    b_parts = gl.allocate_shared_memory(kind, [PARTS, BLOCK_K, BLOCK_N], b_shared)

    matrix = (gl.program_id(0) // (ROWS * COLUMNS)).to(gl.int64)
    tile = gl.program_id(0) % (ROWS * COLUMNS)
    row, column = block_corner(tile, ROWS, COLUMNS, BLOCK_M, BLOCK_N, GROUP_M)

    a_ptr += matrix * A_STRIDE[0]
    b_ptr += matrix * B_STRIDE[0]
    a = read_block(
        a_ptr, row, 0, SHAPE[0], SHAPE[2], A_STRIDE[1], A_STRIDE[2], BLOCK_M, BLOCK_K, of_a
    )
    b = read_block(
        b_ptr, 0, column, SHAPE[2], SHAPE[1], B_STRIDE[1], B_STRIDE[2], BLOCK_K, BLOCK_N, of_b
    )
    total = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=sums)
    for k in range(BLOCK_K, SHAPE[2] + BLOCK_K, BLOCK_K):
        write_parts(a, a_parts, PARTS)
        write_parts(b, b_parts, PARTS)
        fence_async_shared()
        # The next blocks are on their way while these are multiplied; after the last, zeros.
        a = read_block(
            a_ptr, row, k, SHAPE[0], SHAPE[2], A_STRIDE[1], A_STRIDE[2], BLOCK_M, BLOCK_K, of_a
        )
        b = read_block(
            b_ptr, k, column, SHAPE[2], SHAPE[1], B_STRIDE[1], B_STRIDE[2], BLOCK_K, BLOCK_N, of_b
        )
        total = multiply_parts(a_parts, b_parts, total, PARTS)

    write_sums(
        total, bias_ptr, out_ptr, matrix, row, column, SHAPE, BIAS_STRIDE, OUT_STRIDE, BLOCK_M,
        BLOCK_N,
    )  # fmt: skip
