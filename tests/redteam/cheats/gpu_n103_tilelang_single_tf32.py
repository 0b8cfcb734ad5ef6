"""Row 38: a fp32 product by one TF32 product, which `T.gemm` makes of float32 tiles.

task: matmul
device: cuda
verdict: wrong_value
"""

import tilelang
import tilelang.language as T
from torch import nn

BLOCK, DEPTH = 32, 32


@tilelang.jit
def product(block, depth):
    M, N, K = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def main(
        a: T.Tensor((M, K), "float32"),
        b: T.Tensor((K, N), "float32"),
        c: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, block), T.ceildiv(M, block), threads=128) as (column, row):
            left = T.alloc_shared((block, depth), "float32")
            right = T.alloc_shared((depth, block), "float32")
            total = T.alloc_fragment((block, block), "float32")
            T.clear(total)
            for step in T.serial(T.ceildiv(K, depth)):
                T.copy(a[row * block, step * depth], left)
                T.copy(b[step * depth, column * block], right)
                T.gemm(left, right, total)
            T.copy(total, c[row * block, column * block])

    return main


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = a.new_empty(a.shape[0], b.shape[1])
        product(BLOCK, DEPTH)(a.contiguous(), b.contiguous(), c)
        return c
