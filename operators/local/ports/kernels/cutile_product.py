"""A product of matrices in cuTile; programs get copies of these functions.

A float32 is cut into PARTS parts of bfloat16, of which each is the remainder of those before it. Of
the products of parts those too small to matter are left out; the others are added from the smallest
on, and their sum to the total. Matrices are arrays of a batch; a tile outside is zero.
"""

import cuda.tile as ct


@ct.function
def split_bfloat16(value):
    """Rounds a float32 tile to bfloat16; gives that and the remainder in float32."""
    part = ct.astype(value, ct.bfloat16)
    return part, value - ct.astype(part, ct.float32)


@ct.function
def tile_of(array, matrix, row, column, rows, columns):
    """The tile of (rows, columns) elements at tile indices row and column of one matrix."""
    index, shape = (matrix, row, column), (1, rows, columns)
    tile = ct.load(array, index=index, shape=shape, padding_mode=ct.PaddingMode.ZERO)
    return ct.reshape(tile, (rows, columns))


@ct.kernel
def product_kernel(
    a,
    b,
    bias,
    out,
    HAS_BIAS: ct.Constant[int],
    BLOCK_M: ct.Constant[int],
    BLOCK_N: ct.Constant[int],
    BLOCK_K: ct.Constant[int],
    GROUP_M: ct.Constant[int],
    PARTS: ct.Constant[int],
):
    """Computes a @ b + bias for every matrix of a batch; PARTS is 1 if they are narrow already."""
    rows, columns = ct.cdiv(out.shape[1], BLOCK_M), ct.cdiv(out.shape[2], BLOCK_N)
    matrix, tile = ct.bid(0) // (rows * columns), ct.bid(0) % (rows * columns)
    first = tile // (GROUP_M * columns) * GROUP_M
    height = min(rows - first, GROUP_M)
    place = tile % (GROUP_M * columns)
    row, column = first + place % height, place // height
    total = ct.zeros((BLOCK_M, BLOCK_N), dtype=ct.float32)
    for step in range(ct.cdiv(a.shape[2], BLOCK_K)):
        left = tile_of(a, matrix, row, step, BLOCK_M, BLOCK_K)
        right = tile_of(b, matrix, step, column, BLOCK_K, BLOCK_N)
        if PARTS == 1:
            total = ct.mma(left, right, total)
        else:
            a_0, left = split_bfloat16(left)
            b_0, right = split_bfloat16(right)
            a_1, left = split_bfloat16(left)
            b_1, right = split_bfloat16(right)
            small = ct.zeros((BLOCK_M, BLOCK_N), dtype=ct.float32)
            if PARTS == 3:
                a_2, b_2 = ct.astype(left, ct.bfloat16), ct.astype(right, ct.bfloat16)
                small = ct.mma(a_0, b_2, small)
                small = ct.mma(a_1, b_1, small)
                small = ct.mma(a_2, b_0, small)
            small = ct.mma(a_0, b_1, small)
            small = ct.mma(a_1, b_0, small)
            # inf - inf is NaN; the product of the first parts carries the infinity
            small = ct.where(ct.isnan(small), 0.0, small)
            total = total + ct.mma(a_0, b_0, small)
    if HAS_BIAS:
        total = total + ct.astype(tile_of(bias, matrix, row, column, BLOCK_M, BLOCK_N), ct.float32)
    value = ct.reshape(ct.astype(total, out.dtype), (1, BLOCK_M, BLOCK_N))
    ct.store(out, index=(matrix, row, column), tile=value)
