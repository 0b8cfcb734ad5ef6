"""Matrix products of float32 on tensor cores, of operands that are cut into parts beforehand.

A float32 is nearly the sum of two float16 if it is not far below the largest of its line (a row of
`a`, a column of `b`): of numbers above 2^-17 of that, 22 of 24 bits are kept, and smaller ones are
off by 2^-39 of it at most. So every line is multiplied by the power of two that brings its largest
near the largest float16, and sums by the inverses. Errors are relative to the largest of a line
then: if one element is larger than others by 2^40, those count for nothing.

`fp16x3` adds three products of such parts where `bf16x6`, whose parts have the range of float32,
adds six. After Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while
surpassing the FP32 theoretical peak performance" (2022), who multiply the second parts where this
multiplies lines. `fp16`, one part, rounds to 11 bits as tf32 does, at twice its rate, where tf32
has the range of float32. An infinity leaves other lines unchanged, and makes NaN of its own.

`fp16x2` adds two products. Of x = n + d, where n is x rounded to float16, the second part is
x / 9 + 9 d, rounded, and its products have d times n, n times d and an 81st of x times x: with n
times n they are 82/81 of the product of two numbers. They are off by 81 d times d, 2^-15.7 of the
product at most, and by the rounding of second parts, 2^-16.3. Both have random signs if numbers
have: sums are off by 5e-6 then, as those of three bfloat16 products are. That is least for a factor
near 9. Numbers have these bits if they are above 2^-26 of the largest of their line.

Parts lie side by side in whichever direction the operand does. They have room for whole blocks,
with zeros in the direction of the depth: no load of the product is masked.
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.matmul import block_offsets, grouped, with_bias


@triton.jit
def finite(x):
    """Magnitudes, with zero for infinities and NaN."""
    return tl.where(tl.abs(x) < float("inf"), tl.abs(x), 0.0)


@triton.jit
def exponent_for(largest):
    """Of two, to bring the largest of a line to 2^14 or more and below 2^15; at most 126."""
    return tl.minimum(141 - ((largest.to(tl.int32, bitcast=True) >> 23) & 255), 126)


@triton.jit
def power_of_two(exponent):
    """From 2^-126 to 2^127."""
    return ((exponent + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def shrunk(exponent):
    """Two to an exponent of 0 at most, or nothing if that is less than the smallest float32."""
    return tl.where(exponent < -126, 0.0, power_of_two(tl.maximum(exponent, -126)))


@triton.jit
def unscaled(value, exponent):
    """Divided by two to the exponent, in two steps: in range if value and result are."""
    half = exponent >> 1
    return value * power_of_two(-half) * power_of_two(half - exponent)


@triton.jit
def store_parts(x, ptrs, mask, PART_STRIDE: tl.constexpr, INPUT_PRECISION: tl.constexpr):
    """Splits numbers into parts, each of which rounds the remainder of those before it.

    Those of `fp16x2` are of the number multiplied by the root of 81/82.
    """
    if INPUT_PRECISION == "fp16x2":
        x *= 0.9938837346736189
    first = x.to(ptrs.dtype.element_ty)
    tl.store(ptrs, first, mask=mask)
    if INPUT_PRECISION != "fp16":
        rest = x - first.to(tl.float32)
        x = x * 0.1111111111111111 + 9 * rest if INPUT_PRECISION == "fp16x2" else rest
        tl.store(ptrs + PART_STRIDE, x.to(ptrs.dtype.element_ty), mask=mask)
    if INPUT_PRECISION == "bf16x6":
        x -= x.to(ptrs.dtype.element_ty).to(tl.float32)
        tl.store(ptrs + 2 * PART_STRIDE, x.to(ptrs.dtype.element_ty), mask=mask)


@triton.jit
def pack_kernel(
    x_ptr,
    parts_ptr,
    exponents_ptr,
    SHAPE: tl.constexpr,
    STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    LINES: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """Cuts lines of an operand into parts, and stores the exponents of their factors.

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
        largest = tl.maximum(largest, finite(x))
    exponent = exponent_for(tl.max(largest, 1))
    tl.store(exponents_ptr + batch * SHAPE[0] + lines, exponent, mask=lines < SHAPE[0])
    for start in tl.range(0, SHAPE[2], DEPTH):
        places = (start + depth).to(tl.int64)
        x = tl.load(x_ptrs + places * STRIDE[2], mask=inside & (places < SHAPE[1]), other=0.0)
        x *= power_of_two(exponent)[:, None]
        ptrs = part_ptrs + places * PART_STRIDE[3]  # there is room for all LINES
        store_parts(x, ptrs, places < SHAPE[2], PART_STRIDE[0], INPUT_PRECISION)


@triton.jit
def largest_chunk_kernel(
    x_ptr,
    largest_ptr,
    SHAPE: tl.constexpr,
    STRIDE: tl.constexpr,
    LINES: tl.constexpr,
    DEPTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """The largest of CHUNK elements of each line; the grid is (lines, chunks, matrices).

    SHAPE and STRIDE are as in `pack_kernel`. They are stored in the order matrix, chunk, line.
    """
    lines, depth = tl.program_id(0) * LINES + tl.arange(0, LINES), tl.arange(0, DEPTH)[None, :]
    batch, first = tl.program_id(2).to(tl.int64), tl.program_id(1) * CHUNK
    x_ptrs = x_ptr + batch * STRIDE[0] + lines.to(tl.int64)[:, None] * STRIDE[1]
    largest = tl.zeros([LINES, DEPTH], tl.float32)
    for start in tl.range(first, first + CHUNK, DEPTH):
        places = (start + depth).to(tl.int64)
        inside = (lines < SHAPE[0])[:, None] & (places < SHAPE[1])
        x = tl.load(x_ptrs + places * STRIDE[2], mask=inside, other=0.0)
        largest = tl.maximum(largest, finite(x))
    place = (batch * tl.num_programs(1) + tl.program_id(1)) * SHAPE[0] + lines
    tl.store(largest_ptr + place, tl.max(largest, 1), mask=lines < SHAPE[0])


@triton.jit
def pack_chunk_kernel(
    x_ptr,
    largest_ptr,
    parts_ptr,
    exponents_ptr,
    SHAPE: tl.constexpr,
    STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
    LINES: tl.constexpr,
    DEPTH: tl.constexpr,
    CHUNK: tl.constexpr,
):
    """`pack_kernel` with a program for each chunk of lines whose largest elements are known.

    The grid is that of `largest_chunk_kernel`; its last chunks come first, for the cache has them.
    """
    CHUNKS: tl.constexpr = (SHAPE[1] + CHUNK - 1) // CHUNK
    lines, depth = tl.program_id(0) * LINES + tl.arange(0, LINES), tl.arange(0, DEPTH)[None, :]
    batch, first = tl.program_id(2).to(tl.int64), (CHUNKS - 1 - tl.program_id(1)) * CHUNK
    x_ptrs = x_ptr + batch * STRIDE[0] + lines.to(tl.int64)[:, None] * STRIDE[1]
    part_ptrs = parts_ptr + batch * PART_STRIDE[1] + lines.to(tl.int64)[:, None] * PART_STRIDE[2]
    chunks = tl.arange(0, triton.next_power_of_2(CHUNKS))[:, None]
    known = (chunks < CHUNKS) & (lines < SHAPE[0])[None, :]
    place = (batch * CHUNKS + chunks) * SHAPE[0] + lines[None, :]
    exponent = exponent_for(tl.max(tl.load(largest_ptr + place, mask=known, other=0.0), 0))
    if first == 0:
        tl.store(exponents_ptr + batch * SHAPE[0] + lines, exponent, mask=lines < SHAPE[0])
    for start in tl.range(first, first + CHUNK, DEPTH):
        places = (start + depth).to(tl.int64)
        inside = (lines < SHAPE[0])[:, None] & (places < SHAPE[1])
        x = tl.load(x_ptrs + places * STRIDE[2], mask=inside, other=0.0)
        x *= power_of_two(exponent)[:, None]
        ptrs = part_ptrs + places * PART_STRIDE[3]  # there is room for all LINES
        store_parts(x, ptrs, places < SHAPE[2], PART_STRIDE[0], INPUT_PRECISION)


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
        if INPUT_PRECISION == "fp16x2":
            block = tl.dot(a_second, b_second, block)
        else:
            block = tl.dot(a_second, b, block)
            block = tl.dot(a, b_second, block)
        sums += tl.dot(a, b, block)
    return sums


@triton.jit
def matmul_packed_kernel(
    a_ptr,
    b_ptr,
    a_exponents_ptr,
    b_exponents_ptr,
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
    a_exponents_ptr += tl.where(A_STRIDE[1] > 0, batch, 0) * SHAPE[0]
    b_exponents_ptr += tl.where(B_STRIDE[1] > 0, batch, 0) * SHAPE[1]
    a_exponent = tl.load(a_exponents_ptr + rows, rows < SHAPE[0], other=0)
    b_exponent = tl.load(b_exponents_ptr + columns, columns < SHAPE[1], other=0)
    value = unscaled(value, a_exponent + b_exponent)
    bias = batch * BIAS_STRIDE[0] + rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2]
    value = with_bias(value, bias_ptr, bias, mask)
    offsets = batch * OUT_STRIDE[0] + rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def matmul_narrow_kernel(
    a_ptr,
    b_ptr,
    b_exponents_ptr,
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
    INPUT_PRECISION: tl.constexpr,
):
    """Computes a @ b + bias, where `b` has few columns and is packed, and `a` is cut as it is read.

    A block of a row of `a` has an exponent of its own; sums have that of the largest block so far,
    to be in the range of float32 for any operands. SHAPE is (rows, columns, depth); strides of
    parts are as `pack_kernel` has them, others are (batch, row, column) of one matrix.
    """
    COLUMNS: tl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    row = (tl.program_id(0) // COLUMNS * BLOCK_M).to(tl.int64)
    column = (tl.program_id(0) % COLUMNS * BLOCK_N).to(tl.int64)
    rows, columns = row + tl.arange(0, BLOCK_M)[:, None], column + tl.arange(0, BLOCK_N)[None, :]
    a_ptrs = a_ptr + row * A_STRIDE[1]
    a_ptrs = a_ptrs + block_offsets(BLOCK_M, BLOCK_K, A_STRIDE[1], A_STRIDE[2])
    b_ptrs = b_ptr + column * B_STRIDE[2]
    b_ptrs = b_ptrs + block_offsets(BLOCK_K, BLOCK_N, B_STRIDE[3], B_STRIDE[2])
    depth = tl.arange(0, BLOCK_K)[None, :]
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    least = tl.full([BLOCK_M, 1], 126, tl.int32)
    for start in tl.range(0, SHAPE[2], BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows < SHAPE[0]) & (start + depth < SHAPE[2]), other=0.0)
        exponent = exponent_for(tl.max(finite(a), 1))[:, None]
        a *= power_of_two(exponent)
        first, b = a.to(tl.float16), tl.load(b_ptrs)
        block = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
        if INPUT_PRECISION != "fp16":
            block = tl.dot((a - first.to(tl.float32)).to(tl.float16), b, block)
            block = tl.dot(first, tl.load(b_ptrs + B_STRIDE[0]), block)
        block = tl.dot(first, b, block)
        before, least = least, tl.minimum(least, exponent)
        value = value * shrunk(least - before) + block * shrunk(least - exponent)
        a_ptrs += BLOCK_K * A_STRIDE[2]
        b_ptrs += BLOCK_K * B_STRIDE[3]
    mask = (rows < SHAPE[0]) & (columns < SHAPE[1])
    exponent = tl.load(b_exponents_ptr + columns, columns < SHAPE[1], other=0)
    value = unscaled(value, least + exponent)
    value = with_bias(value, bias_ptr, rows * BIAS_STRIDE[1] + columns * BIAS_STRIDE[2], mask)
    offsets = rows * OUT_STRIDE[1] + columns * OUT_STRIDE[2]
    tl.store(out_ptr + offsets, value, mask)
