"""Matrix products of float32 on tensor cores, of operands that are cut into parts beforehand.

A float32 is nearly the sum of two float16 if it is not far below the largest of its line (a row of
`a`, a column of `b`): of what is more than 2^-17 of that, 22 of 24 bits are kept, and what is less
is off by 2^-40 of it at most. So every line is multiplied by the power of two that brings its
largest near the largest float16, and sums by the inverses. `fp16x3` adds three products of such
parts where `bf16x6`, whose parts have the range of float32, adds six. After Ootomo and Yokota,
"Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
performance" (2022), who multiply the second parts where this multiplies lines. `fp16`, one part,
rounds to 11 bits like tf32, at twice its rate.

Parts lie side by side in whichever direction the operand does. They have room for whole blocks,
with zeros in the direction of the depth: no load of the product is masked.
"""

import triton
import triton.language as tl

from operators.templates.kernels.matmul import block_offsets, grouped, with_bias


@triton.jit
def power_for(largest):
    """The power of two that brings a line's largest to 2^14 or more and below 2^15."""
    exponent = (largest.to(tl.int32, bitcast=True) >> 23) & 255
    return (tl.minimum(268 - exponent, 253) << 23).to(tl.float32, bitcast=True)


@triton.jit
def store_parts(x, ptrs, mask, PART_STRIDE: tl.constexpr, INPUT_PRECISION: tl.constexpr):
    """Cuts numbers into parts, each of which rounds what those before it leave."""
    tl.store(ptrs, x.to(ptrs.dtype.element_ty), mask=mask)
    if INPUT_PRECISION != "fp16":
        x -= x.to(ptrs.dtype.element_ty).to(tl.float32)
        tl.store(ptrs + PART_STRIDE, x.to(ptrs.dtype.element_ty), mask=mask)
    if INPUT_PRECISION == "bf16x6":
        x -= x.to(ptrs.dtype.element_ty).to(tl.float32)
        tl.store(ptrs + 2 * PART_STRIDE, x.to(ptrs.dtype.element_ty), mask=mask)


@triton.jit
def pack_kernel(
    x_ptr,
    parts_ptr,
    inverses_ptr,
    SHAPE: tl.constexpr,
    STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    LINES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Cuts lines of an operand into parts, and stores the inverses of what they were multiplied by.

    SHAPE is (lines, depth, depth of the parts). STRIDE is in the order batch, line, depth, and
    PART_STRIDE in the order part, batch, line, depth.
    """
    lines, depth = tl.program_id(0) * LINES + tl.arange(0, LINES), tl.arange(0, DEPTH)[None, :]
    batch, inside = tl.program_id(1).to(tl.int64), (lines < SHAPE[0])[:, None]
    x_ptrs = x_ptr + batch * STRIDE[0] + lines.to(tl.int64)[:, None] * STRIDE[1]
    part_ptrs = parts_ptr + batch * PART_STRIDE[1] + lines.to(tl.int64)[:, None] * PART_STRIDE[2]
    largest = tl.zeros([LINES, DEPTH], tl.float32)
    for start in tl.range(0, SHAPE[1], DEPTH):
        places = (start + depth).to(tl.int64)
        x = tl.load(x_ptrs + places * STRIDE[2], mask=inside & (places < SHAPE[1]), other=0.0)
        largest = tl.maximum(largest, tl.abs(x))
    power = power_for(tl.max(largest, 1))
    tl.store(inverses_ptr + batch * SHAPE[0] + lines, 1.0 / power, mask=lines < SHAPE[0])
    for start in tl.range(0, SHAPE[2], DEPTH):
        places = (start + depth).to(tl.int64)
        x = tl.load(x_ptrs + places * STRIDE[2], mask=inside & (places < SHAPE[1]), other=0.0)
        ptrs = part_ptrs + places * PART_STRIDE[3]  # there is room for all LINES
        store_parts(x * power[:, None], ptrs, places < SHAPE[2], PART_STRIDE[0], INPUT_PRECISION)


@triton.jit
def add_product(
    sums,
    a_ptrs,
    b_ptrs,
    inside,
    A_PART: tl.constexpr,
    B_PART: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Sums plus the product of a block of `a`, as far as that is inside, and one of `b`.

    Of several products the smallest are added first, and their sum outside the tensor cores, which
    do not round to nearest.
    """
    a, b = tl.load(a_ptrs, mask=inside, other=0.0), tl.load(b_ptrs)
    if INPUT_PRECISION == "fp16":
        sums = tl.dot(a, b, sums)
    else:
        a_second = tl.load(a_ptrs + A_PART, mask=inside, other=0.0)
        b_second = tl.load(b_ptrs + B_PART)
        block = tl.zeros(sums.shape, tl.float32)
        if INPUT_PRECISION == "bf16x6":
            block = tl.dot(tl.load(a_ptrs + 2 * A_PART, mask=inside, other=0.0), b, block)
            block = tl.dot(a, tl.load(b_ptrs + 2 * B_PART), block)
            block = tl.dot(a_second, b_second, block)
        block = tl.dot(a_second, b, block)
        block = tl.dot(a, b_second, block)
        sums += tl.dot(a, b, block)
    return sums


@triton.jit
def matmul_packed_kernel(
    a_ptr,
    b_ptr,
    a_inverses_ptr,
    b_inverses_ptr,
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
    """Computes a @ b + bias of packed operands, for every matrix of a batch.

    SHAPE is (rows, columns, depth of the parts); strides of parts as `pack_kernel` has them.
    """
    ROWS: tl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    batch = (tl.program_id(0) // (ROWS * COLUMNS)).to(tl.int64)
    tile_row, tile_column = grouped(tl.program_id(0) % (ROWS * COLUMNS), ROWS, COLUMNS, GROUP_M)
    row, column = (tile_row * BLOCK_M).to(tl.int64), (tile_column * BLOCK_N).to(tl.int64)
    a_ptrs = a_ptr + batch * A_STRIDE[1] + row * A_STRIDE[2]
    a_ptrs = a_ptrs + block_offsets(BLOCK_M, BLOCK_K, A_STRIDE[2], A_STRIDE[3])
    b_ptrs = b_ptr + batch * B_STRIDE[1] + column * B_STRIDE[2]
    b_ptrs = b_ptrs + block_offsets(BLOCK_K, BLOCK_N, B_STRIDE[3], B_STRIDE[2])
    inside = tl.full([1, BLOCK_K], True, tl.int1)
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for _ in tl.range(0, SHAPE[2], BLOCK_K):
        value = add_product(
            value, a_ptrs, b_ptrs, inside, A_STRIDE[0], B_STRIDE[0], INPUT_PRECISION
        )
        a_ptrs += BLOCK_K * A_STRIDE[3]
        b_ptrs += BLOCK_K * B_STRIDE[3]
    rows = (row + tl.arange(0, BLOCK_M))[:, None]
    columns = (column + tl.arange(0, BLOCK_N))[None, :]
    mask = (rows < SHAPE[0]) & (columns < SHAPE[1])
    a_inverses_ptr += tl.where(A_STRIDE[1] > 0, batch, 0) * SHAPE[0]
    b_inverses_ptr += tl.where(B_STRIDE[1] > 0, batch, 0) * SHAPE[1]
    a_inverse = tl.load(a_inverses_ptr + rows, rows < SHAPE[0], other=0.0)
    b_inverse = tl.load(b_inverses_ptr + columns, columns < SHAPE[1], other=0.0)
    value *= a_inverse * b_inverse
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2]
    value = with_bias(value, bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)
