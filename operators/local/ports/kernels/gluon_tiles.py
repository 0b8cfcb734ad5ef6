"""A product of fp16 or bf16 matrices in Gluon, whose tiles the tensor memory accelerator reads.

Tiles of STAGES steps are in shared memory or on their way there. Each stage has a barrier, which
says that its tiles have come; it is filled anew after all warps have multiplied what was in it.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from operators.local.ports.kernels.gluon_product import accumulator, block_corner, write_sums


def tiles_of(matrix, shape, stride, block):
    """A matrix by tiles of a block's size; turned, if elements of a column lie side by side."""
    if stride[1] != 1:
        shape, stride, block = shape[::-1], stride[::-1], block[::-1]
    layout = gl.NVMMASharedLayout.get_default_for([*block], gl.float16)
    return TensorDescriptor(matrix, [*shape], [*stride], [*block], layout)


@gluon.jit
def read_tile(matrix, row, column, barrier, tile):
    """Starts to read a tile, by the only name that Triton 3.7 has for that, or 3.9.

    As a plain attribute the newer name would be looked up before it is known whether it exists.
    """
    if hasattr(tma, "async_load"):
        getattr(tma, "async_load")(matrix, [row, column], barrier, tile)  # noqa: B009
    else:
        tma.async_copy_global_to_shared(matrix, [row, column], barrier, tile)


@gluon.jit
def read_tiles(
    a,
    b,
    row,
    column,
    step,
    barriers,
    a_tiles,
    b_tiles,
    A_IN_ROWS: gl.constexpr,
    B_IN_ROWS: gl.constexpr,
    BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Starts to read the tiles of a step to its stage."""
    k, stage = step * BLOCK_K, step % STAGES
    barrier = barriers.index(stage)
    mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
    if A_IN_ROWS:
        read_tile(a, row, k, barrier, a_tiles.index(stage))
    else:
        read_tile(a, k, row, barrier, a_tiles.index(stage))
    if B_IN_ROWS:
        read_tile(b, k, column, barrier, b_tiles.index(stage))
    else:
        read_tile(b, column, k, barrier, b_tiles.index(stage))


@gluon.jit
def tiled_product_kernel(
    a,
    b,
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
    STAGES: gl.constexpr,
):
    """Computes a @ b + bias. SHAPE is (rows, columns, depth); a and b are descriptors."""
    A_IN_ROWS: gl.constexpr = A_STRIDE[2] == 1
    B_IN_ROWS: gl.constexpr = B_STRIDE[2] == 1
    ROWS: gl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: gl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = (SHAPE[2] + BLOCK_K - 1) // BLOCK_K
    row, column = block_corner(gl.program_id(0), ROWS, COLUMNS, BLOCK_M, BLOCK_N, GROUP_M)

    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(barriers.index(stage), count=1)
    for step in gl.static_range(STAGES - 1):
        if step < STEPS:
            read_tiles(
                a, b, row, column, step, barriers, a_tiles, b_tiles, A_IN_ROWS, B_IN_ROWS, BLOCK_K,
                STAGES,
            )  # fmt: skip
    sums: gl.constexpr = accumulator(BLOCK_M, BLOCK_N, gl.num_warps())
    total = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=sums)
    for step in range(STEPS):
        mbarrier.wait(barriers.index(step % STAGES), step // STAGES & 1)
        left, right = a_tiles.index(step % STAGES), b_tiles.index(step % STAGES)
        if not A_IN_ROWS:
            left = left.permute((1, 0))
        if not B_IN_ROWS:
            right = right.permute((1, 0))
        total = warpgroup_mma(left, right, total)
        ahead = step + STAGES - 1
        if ahead < STEPS:
            read_tiles(
                a, b, row, column, ahead, barriers, a_tiles, b_tiles, A_IN_ROWS, B_IN_ROWS, BLOCK_K,
                STAGES,
            )  # fmt: skip
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(barriers.index(stage))
    write_sums(
        total, bias_ptr, out_ptr, 0, row, column, SHAPE, BIAS_STRIDE, OUT_STRIDE, BLOCK_M, BLOCK_N
    )
