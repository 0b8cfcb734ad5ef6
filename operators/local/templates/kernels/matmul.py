"""Matrix products: by tiles of the result, with long sums cut if tiles are few, and by vectors.

Sizes and strides are compile-time constants, strides in elements and in the order batch, row,
column. The tiling and its grouped order are those of Triton's tutorial on matrix multiplication.
"""

import triton
import triton.language as tl


@triton.jit
def grouped(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of a tile; neighbours share up to GROUP rows of tiles in the L2 cache."""
    first = tile // (GROUP * COLUMNS) * GROUP
    height = tl.minimum(ROWS - first, GROUP)
    place = tile % (GROUP * COLUMNS)
    return first + place % height, place // height


@triton.jit
def block_offsets(
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROW_STRIDE: tl.constexpr,
    COLUMN_STRIDE: tl.constexpr,
):
    """Where elements of a block lie, from its first one on; in 64 bits if 32 are too few."""
    rows, columns = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    if ROWS * ROW_STRIDE + COLUMNS * COLUMN_STRIDE >= 2**31:
        rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    return rows * ROW_STRIDE + columns * COLUMN_STRIDE


@triton.jit
def matmul_tile(
    a_ptr,
    b_ptr,
    row,
    column,
    start,
    stop,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Sums over k in [start, stop) for the tile whose first element is (row, column)."""
    rows, columns, depth = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + row.to(tl.int64) * A_STRIDE[1] + tl.cast(start, tl.int64) * A_STRIDE[2]
    b_ptrs = b_ptr + column.to(tl.int64) * B_STRIDE[2] + tl.cast(start, tl.int64) * B_STRIDE[1]
    a_ptrs = a_ptrs + block_offsets(BLOCK_M, BLOCK_K, A_STRIDE[1], A_STRIDE[2])
    b_ptrs = b_ptrs + block_offsets(BLOCK_K, BLOCK_N, B_STRIDE[1], B_STRIDE[2])
    rows_in = (row + rows < SHAPE[0])[:, None]
    columns_in = (column + columns < SHAPE[1])[None, :]
    if SHAPE[0] % BLOCK_M == 0:
        rows_in = tl.full([BLOCK_M, 1], True, tl.int1)
    if SHAPE[1] % BLOCK_N == 0:
        columns_in = tl.full([1, BLOCK_N], True, tl.int1)
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.range(start, stop, BLOCK_K):
        depth_in = k + depth < stop
        if SHAPE[2] % BLOCK_K == 0:
            depth_in = tl.full([BLOCK_K], True, tl.int1)
        a = tl.load(a_ptrs, mask=rows_in & depth_in[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=depth_in[:, None] & columns_in, other=0.0)
        sums = tl.dot(a, b, sums, input_precision=INPUT_PRECISION)
        a_ptrs += BLOCK_K * A_STRIDE[2]
        b_ptrs += BLOCK_K * B_STRIDE[1]
    return sums


@triton.jit
def with_bias(value, bias_ptr, offsets, mask):
    """Plus the value stored there; None if there is nothing to add."""
    if bias_ptr is not None:
        value += tl.load(bias_ptr + offsets, mask, other=0.0).to(tl.float32)
    return value


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
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
):
    """Computes a @ b + bias for every matrix of a batch. SHAPE is (rows, columns, depth)."""
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    batch = (tl.program_id(0) // (ROWS * COLUMNS)).to(tl.int64)
    tile_row, tile_column = grouped(tl.program_id(0) % (ROWS * COLUMNS), ROWS, COLUMNS, GROUP_M)
    row, column = tile_row * BLOCK_M, tile_column * BLOCK_N
    value = matmul_tile(
        a_ptr + batch * A_STRIDE[0],
        b_ptr + batch * B_STRIDE[0],
        row,
        column,
        0,
        SHAPE[2],
        SHAPE,
        A_STRIDE,
        B_STRIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        INPUT_PRECISION,
    )
    rows = (row + tl.arange(0, BLOCK_M))[:, None]
    columns = (column + tl.arange(0, BLOCK_N))[None, :]
    mask = (rows < SHAPE[0]) & (columns < SHAPE[1])
    rows, columns = rows.to(tl.int64), columns.to(tl.int64)
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2]
    value = with_bias(value, bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def matmul_split_kernel(
    a_ptr,
    b_ptr,
    parts_ptr,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One of PARTS parts of the depth, for a few tiles with long sums.

    Parts lie one after the other, each row by row; `matmul_parts_kernel` adds them.
    """
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    batch = (tl.program_id(0) // (ROWS * COLUMNS)).to(tl.int64)
    tile_row, tile_column = grouped(tl.program_id(0) % (ROWS * COLUMNS), ROWS, COLUMNS, GROUP_M)
    row, column = tile_row * BLOCK_M, tile_column * BLOCK_N
    slices = tl.cdiv(tl.cdiv(SHAPE[2], BLOCK_K), PARTS)
    start = tl.program_id(1) * slices * BLOCK_K
    value = matmul_tile(
        a_ptr + batch * A_STRIDE[0],
        b_ptr + batch * B_STRIDE[0],
        row,
        column,
        start,
        tl.minimum(start + slices * BLOCK_K, SHAPE[2]),
        SHAPE,
        A_STRIDE,
        B_STRIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        INPUT_PRECISION,
    )
    rows = (row + tl.arange(0, BLOCK_M))[:, None]
    columns = (column + tl.arange(0, BLOCK_N))[None, :]
    mask = (rows < SHAPE[0]) & (columns < SHAPE[1])
    matrices = tl.num_programs(0) // (ROWS * COLUMNS)
    part = (tl.program_id(1) * matrices + batch) * SHAPE[0] * SHAPE[1]
    tl.store(parts_ptr + part + rows.to(tl.int64) * SHAPE[1] + columns, value, mask)


@triton.jit
def matmul_parts_kernel(
    parts_ptr,
    bias_ptr,
    out_ptr,
    SHAPE: tl.constexpr,
    BIAS_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Computes the sum of PARTS parts of SIZE elements each, in their order, + bias."""
    xindex = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = xindex < SIZE
    value = tl.zeros([BLOCK], tl.float32)
    for part in range(PARTS):
        value += tl.load(parts_ptr + part * SIZE + xindex, mask, other=0.0)
    columns = xindex % SHAPE[1]
    rows = xindex // SHAPE[1] % SHAPE[0]
    batch = xindex // (SHAPE[0] * SHAPE[1])
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2]
    value = with_bias(value, bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def matvec_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    BIAS_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Computes a @ b + bias if b has one column. SHAPE is (rows, 1, depth)."""
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    batch = (tl.program_id(0) // ROWS).to(tl.int64)
    rows = tl.program_id(0) % ROWS * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + batch * A_STRIDE[0] + rows.to(tl.int64)[:, None] * A_STRIDE[1]
    a_ptrs = a_ptrs + block_offsets(1, BLOCK_K, 0, A_STRIDE[2])
    b_ptrs = b_ptr + batch * B_STRIDE[0] + block_offsets(1, BLOCK_K, 0, B_STRIDE[1])
    sums = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    for k in tl.range(0, SHAPE[2], BLOCK_K):
        inside = (k + depth < SHAPE[2])[None, :]
        a = tl.load(a_ptrs, mask=(rows < SHAPE[0])[:, None] & inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptrs, mask=inside, other=0.0).to(tl.float32)
        sums += a * b
        a_ptrs += BLOCK_K * A_STRIDE[2]
        b_ptrs += BLOCK_K * B_STRIDE[1]
    mask = rows < SHAPE[0]
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1]
    value = with_bias(tl.sum(sums, 1), bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows.to(tl.int64) * OUT_STRIDE[1]
    tl.store(out_ptr + offsets, value, mask)
