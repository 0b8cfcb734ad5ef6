"""Matrix products whose work is cut evenly, for any number of tiles (stream-K).

The depth of a tile is UNITS units of 64. All tiles' units, one after the other, are shared out
evenly among PROGRAMS programs. A tile that is one program's alone it stores; its shares of others,
the first and the last, go into two parts, and a second kernel adds those in their order: nothing
depends on who is done first. After Osama et al., "Stream-K: Work-centric parallel decomposition for
dense matrix-matrix multiplication on the GPU" (2023).
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.matmul import grouped, matmul_tile, with_bias


@triton.jit
def stream_place(
    tile,
    SHAPE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """Matrix, and first row and column of a tile."""
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    row, column = grouped(tile % (ROWS * COLUMNS), ROWS, COLUMNS, GROUP_M)
    return (tile // (ROWS * COLUMNS)).to(tl.int64), row * BLOCK_M, column * BLOCK_N


@triton.jit
def stream_store(
    value,
    place,
    height,
    bias_ptr,
    out_ptr,
    SHAPE: tl.constexpr,
    BIAS_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """A tile plus bias, as far as its rows are less than a height; that is 0 for nothing."""
    batch, row, column = place
    rows = (row + tl.arange(0, BLOCK_M))[:, None]
    columns = (column + tl.arange(0, BLOCK_N))[None, :]
    mask = (rows < height) & (columns < SHAPE[1])
    rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2]
    value = with_bias(value, bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def matmul_stream_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    parts_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    BIAS_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """One of PROGRAMS equal shares of a @ b + bias. SHAPE is (rows, columns, depth)."""
    UNITS: tl.constexpr = (SHAPE[2] + 63) // 64
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    TOTAL: tl.constexpr = BATCH * ROWS * COLUMNS * UNITS
    SHARE: tl.constexpr = (TOTAL + PROGRAMS - 1) // PROGRAMS
    first = tl.program_id(0) * SHARE
    last = tl.minimum(first + SHARE, TOTAL)
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    for segment in tl.range(0, (SHARE + UNITS - 1) // UNITS + 1):
        tile = first // UNITS + segment
        start = tl.maximum(first, tile * UNITS) - tile * UNITS
        stop = tl.minimum(last, (tile + 1) * UNITS) - tile * UNITS
        place = stream_place(tile, SHAPE, BLOCK_M, BLOCK_N, GROUP_M)
        batch, row, column = place
        value = matmul_tile(
            a_ptr + batch * A_STRIDE[0],
            b_ptr + batch * B_STRIDE[0],
            row,
            column,
            start * 64,
            tl.minimum(stop * 64, SHAPE[2]),
            SHAPE,
            A_STRIDE,
            B_STRIDE,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            INPUT_PRECISION,
        )
        rows = tl.where(stop - start == UNITS, SHAPE[0], 0)
        stream_store(
            value, place, rows, bias_ptr, out_ptr, SHAPE, BIAS_STRIDE, OUT_STRIDE, BLOCK_M, BLOCK_N
        )
        part = tl.program_id(0) * 2 + tl.minimum(segment, 1)
        size = tl.where((stop > start) & (stop - start < UNITS), BLOCK_M * BLOCK_N, 0)
        tl.store(parts_ptr + part * (BLOCK_M * BLOCK_N) + inside, value, inside < size)


@triton.jit
def stream_parts_kernel(
    parts_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    SHAPE: tl.constexpr,
    BIAS_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """A tile that several programs have parts of: their sum, in order, plus bias."""
    UNITS: tl.constexpr = (SHAPE[2] + 63) // 64
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    SHARE: tl.constexpr = (BATCH * ROWS * COLUMNS * UNITS + PROGRAMS - 1) // PROGRAMS
    tile = tl.program_id(0)
    first, last = tile * UNITS // SHARE, ((tile + 1) * UNITS - 1) // SHARE
    inside = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if first < last:
        for program in tl.range(first, last + 1):
            started_before = tl.where(program * SHARE < tile * UNITS, 1, 0)
            part = program * 2 + started_before
            value += tl.load(parts_ptr + part * (BLOCK_M * BLOCK_N) + inside)
    place = stream_place(tile, SHAPE, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tl.where(first < last, SHAPE[0], 0)
    stream_store(
        value, place, rows, bias_ptr, out_ptr, SHAPE, BIAS_STRIDE, OUT_STRIDE, BLOCK_M, BLOCK_N
    )
