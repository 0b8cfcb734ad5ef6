"""A product of matrices in TileLang; programs get copies of this function.

A float32 is cut into PARTS parts of bfloat16, of which each is the remainder of those before it. Of
the products of parts those too small to matter are left out; the others are added from the smallest
on, and their sum to the total, since tensor cores cut off low bits of their sums.

A loop changes no element that it has read: TileLang keeps what was read before.
"""

import tilelang
import tilelang.language as T


@tilelang.jit
def product_kernel(
    SHAPE,
    BATCH,
    A_STRIDE,
    B_STRIDE,
    BIAS_STRIDE,
    OUT_STRIDE,
    KIND,
    HAS_BIAS,
    BLOCK_M,
    BLOCK_N,
    BLOCK_K,
    GROUP_M,
    PARTS,
    NUM_WARPS,
):
    """Computes a @ b + bias for every matrix of a batch. SHAPE is (rows, columns, depth).

    A matrix for the whole batch, whose stride is 0, is a batch of one: TMA takes no stride of 0.
    """
    rows, columns, depth = SHAPE
    narrow = KIND if PARTS == 1 else "bfloat16"
    each_a, each_b, each_out = (int(s[0] != 0) for s in (A_STRIDE, B_STRIDE, OUT_STRIDE))
    a_shape = (BATCH if each_a else 1, rows, depth)
    b_shape = (BATCH if each_b else 1, depth, columns)
    out_shape = (BATCH if each_out else 1, rows, columns)
    a_stride = (A_STRIDE[0] or rows * depth, *A_STRIDE[1:])
    b_stride = (B_STRIDE[0] or depth * columns, *B_STRIDE[1:])
    out_stride = (OUT_STRIDE[0] or rows * columns, *OUT_STRIDE[1:])

    @T.prim_func
    def main(
        a: T.StridedTensor(a_shape, a_stride, KIND),
        b: T.StridedTensor(b_shape, b_stride, KIND),
        bias: T.StridedTensor((BATCH, rows, columns), BIAS_STRIDE, KIND),
        out: T.StridedTensor(out_shape, out_stride, KIND),
    ):
        with T.Kernel(
            T.ceildiv(columns, BLOCK_N), T.ceildiv(rows, BLOCK_M), BATCH, threads=32 * NUM_WARPS
        ) as (column, row, matrix):
            left = T.alloc_shared((BLOCK_M, BLOCK_K), KIND)
            right = T.alloc_shared((BLOCK_K, BLOCK_N), KIND)
            total = T.alloc_fragment((BLOCK_M, BLOCK_N), "float32")
            T.use_swizzle(panel_size=GROUP_M)
            T.clear(total)
            if PARTS == 1:
                for step in T.Pipelined(T.ceildiv(depth, BLOCK_K), num_stages=2):
                    T.copy(a[matrix * each_a, row * BLOCK_M, step * BLOCK_K], left)
                    T.copy(b[matrix * each_b, step * BLOCK_K, column * BLOCK_N], right)
                    T.gemm(left, right, total)
            else:
                a_0 = T.alloc_shared((BLOCK_M, BLOCK_K), narrow)
                a_1 = T.alloc_shared((BLOCK_M, BLOCK_K), narrow)
                a_2 = T.alloc_shared((BLOCK_M, BLOCK_K), narrow)
                b_0 = T.alloc_shared((BLOCK_K, BLOCK_N), narrow)
                b_1 = T.alloc_shared((BLOCK_K, BLOCK_N), narrow)
                b_2 = T.alloc_shared((BLOCK_K, BLOCK_N), narrow)
                small = T.alloc_fragment((BLOCK_M, BLOCK_N), "float32")
                for step in T.serial(T.ceildiv(depth, BLOCK_K)):
                    T.copy(a[matrix * each_a, row * BLOCK_M, step * BLOCK_K], left)
                    T.copy(b[matrix * each_b, step * BLOCK_K, column * BLOCK_N], right)
                    for i, j in T.Parallel(BLOCK_M, BLOCK_K):
                        a_0[i, j] = T.cast(left[i, j], narrow)
                        a_1[i, j] = T.cast(left[i, j] - T.cast(a_0[i, j], KIND), narrow)
                        if PARTS == 3:
                            rest = left[i, j] - T.cast(a_0[i, j], KIND)
                            a_2[i, j] = T.cast(rest - T.cast(a_1[i, j], KIND), narrow)
                    for i, j in T.Parallel(BLOCK_K, BLOCK_N):
                        b_0[i, j] = T.cast(right[i, j], narrow)
                        b_1[i, j] = T.cast(right[i, j] - T.cast(b_0[i, j], KIND), narrow)
                        if PARTS == 3:
                            rest = right[i, j] - T.cast(b_0[i, j], KIND)
                            b_2[i, j] = T.cast(rest - T.cast(b_1[i, j], KIND), narrow)
                    T.clear(small)
                    if PARTS == 3:
                        T.gemm(a_0, b_2, small)
                        T.gemm(a_1, b_1, small)
                        T.gemm(a_2, b_0, small)
                    T.gemm(a_0, b_1, small)
                    T.gemm(a_1, b_0, small)
                    # inf - inf is NaN; the product of the first parts carries the infinity
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        small[i, j] = T.if_then_else(T.isnan(small[i, j]), 0.0, small[i, j])
                    T.gemm(a_0, b_0, small)
                    for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                        total[i, j] += small[i, j]
            if HAS_BIAS:
                for i, j in T.Parallel(BLOCK_M, BLOCK_N):
                    m, n = row * BLOCK_M + i, column * BLOCK_N + j
                    if (m < rows) & (n < columns):
                        total[i, j] += T.cast(bias[matrix, m, n], "float32")
            T.copy(total, out[matrix * each_out, row * BLOCK_M, column * BLOCK_N])

    return main
