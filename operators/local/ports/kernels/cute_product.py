"""A product of matrices in CuTe DSL; programs get copies of these functions.

Tiles go to shared memory in PARTS parts in fp16 or bf16 (a float32 into two or three, of which each
is the remainder of the one before) and are multiplied by warps. Of the products of parts those too
small to matter are left out; the others are added from the smallest on, and their sum to the total.
Constants are those of `matmul_kernel` (`operators.local.templates.kernels.matmul`).
"""

import cutlass
from cutlass import cute
from cutlass.memory import SmemAllocator

from operators.local.ports.kernels.cute_blocks import load, store, where


@cute.jit
def read_parts(
    source: cute.Tensor,
    start,
    row,
    column,
    parts,
    SHAPE: cutlass.Constexpr,
    STRIDE: cutlass.Constexpr,
    THREADS: cutlass.Constexpr,
):
    """A block of a matrix, part by part, with zeros outside; neighbours read side by side."""
    thread, _, _ = cute.arch.thread_idx()
    height, width = parts[0].shape
    for step in cutlass.range_constexpr(height * width // THREADS):
        at = step * THREADS + thread
        m, n = at // width, at % width
        if cutlass.const_expr(STRIDE[1] != 1):
            m, n = at % height, at // height
        inside = (row + m < SHAPE[0]) & (column + n < SHAPE[1])
        value = load(source, start + (row + m) * STRIDE[0] + (column + n) * STRIDE[1], inside, 0.0)
        for part in cutlass.range_constexpr(len(parts)):
            narrow = parts[part].element_type(value)
            parts[part][m, n] = narrow
            value = value - cutlass.Float32(narrow)


@cute.kernel
def product_kernel(
    a: cute.Tensor,
    b: cute.Tensor,
    bias: cute.Tensor,
    out: cute.Tensor,
    mma: cute.TiledMma,
    HAS_BIAS: cutlass.Constexpr,
    SHAPE: cutlass.Constexpr,
    A_STRIDE: cutlass.Constexpr,
    B_STRIDE: cutlass.Constexpr,
    BIAS_STRIDE: cutlass.Constexpr,
    OUT_STRIDE: cutlass.Constexpr,
    BLOCK_M: cutlass.Constexpr,
    BLOCK_N: cutlass.Constexpr,
    BLOCK_K: cutlass.Constexpr,
    GROUP_M: cutlass.Constexpr,
    PARTS: cutlass.Constexpr,
    THREADS: cutlass.Constexpr,
):
    """Computes a @ b + bias for every matrix of a batch. SHAPE is (rows, columns, depth)."""
    ROWS, COLUMNS, DEPTH = SHAPE
    rows, columns = -(-ROWS // BLOCK_M), -(-COLUMNS // BLOCK_N)
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    matrix, tile = block // (rows * columns), block % (rows * columns)
    first = tile // (GROUP_M * columns) * GROUP_M
    height = cutlass.min(rows - first, GROUP_M)
    place = tile % (GROUP_M * columns)
    row, column = (first + place % height) * BLOCK_M, place // height * BLOCK_N
    matrix = cutlass.Int64(matrix)

    narrow = a.element_type
    if cutlass.const_expr(PARTS > 1):
        narrow = cutlass.BFloat16
    shared = SmemAllocator()
    of_a = cute.make_layout((BLOCK_M, BLOCK_K), stride=(BLOCK_K + 8, 1))
    of_b = cute.make_layout((BLOCK_K, BLOCK_N), stride=(BLOCK_N + 8, 1))
    lefts = [shared.allocate_tensor(narrow, of_a, 16) for _ in range(PARTS)]
    rights = [shared.allocate_tensor(narrow, of_b, 16) for _ in range(PARTS)]
    turned = [cute.make_tensor(b.iterator, cute.select(b.layout, [1, 0])) for b in rights]
    mine = mma.get_slice(thread)
    from_a = [mine.partition_A(left) for left in lefts]
    from_b = [mine.partition_B(right) for right in turned]
    a_parts = [mma.make_fragment_A(part) for part in from_a]
    b_parts = [mma.make_fragment_B(part) for part in from_b]
    spots = mine.partition_C(cute.make_identity_tensor((BLOCK_M, BLOCK_N)))
    total = cute.make_rmem_tensor(spots.shape, cutlass.Float32)
    total.fill(0.0)
    for start in range(0, DEPTH, BLOCK_K):
        read_parts(a, matrix * A_STRIDE[0], row, start, lefts, (ROWS, DEPTH), A_STRIDE[1:], THREADS)
        read_parts(
            b, matrix * B_STRIDE[0], start, column, rights, (DEPTH, COLUMNS), B_STRIDE[1:], THREADS
        )
        cute.arch.sync_threads()
        for part in cutlass.range_constexpr(PARTS):
            cute.autovec_copy(from_a[part], a_parts[part])
            cute.autovec_copy(from_b[part], b_parts[part])
        small = cute.make_rmem_tensor(spots.shape, cutlass.Float32)
        small.fill(0.0)
        for skipped in cutlass.range_constexpr(PARTS):
            for part in cutlass.range_constexpr(PARTS - skipped):
                if cutlass.const_expr(PARTS > 1 and skipped == PARTS - 1):
                    # inf - inf is NaN; the product of the first parts carries the infinity
                    for i in cutlass.range_constexpr(cute.size(small)):
                        small[i] = where(small[i] != small[i], cutlass.Float32(0.0), small[i])
                left, right = a_parts[part], b_parts[PARTS - 1 - skipped - part]
                for k in cutlass.range_constexpr(cute.size(left, mode=[2])):
                    cute.gemm(mma, small, left[None, None, k], right[None, None, k], small)
        for i in cutlass.range_constexpr(cute.size(total)):
            total[i] += small[i]
        cute.arch.sync_threads()
    for i in cutlass.range_constexpr(cute.size(total)):
        m, n = row + spots[i][0], column + spots[i][1]
        inside = (m < ROWS) & (n < COLUMNS)
        value = total[i]
        if cutlass.const_expr(HAS_BIAS):
            at = matrix * BIAS_STRIDE[0] + m * BIAS_STRIDE[1] + n * BIAS_STRIDE[2]
            value = value + load(bias, at, inside, 0.0)
        store(out, matrix * OUT_STRIDE[0] + m * OUT_STRIDE[1] + n * OUT_STRIDE[2], value, inside)
