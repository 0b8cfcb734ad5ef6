"""A product of float32 matrices in Gluon, of operands that are cut into parts beforehand.

Parts, exponents and their room are those of `operators.local.templates.kernels.packed`, whose
functions without layouts a program gets too, rewritten as the compiler's are. Tiles of
parts are read by the tensor memory accelerator, one below the other as in memory; those of STAGES
steps are in shared memory or on their way there. SUM_STEPS steps are added up by the tensor cores,
which cut off low bits of their sums, and these sums outside.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from operators.local.ports.kernels.gluon_product import (
    accumulator,
    block_corner,
    side_by_side,
    write_sums,
)
from operators.local.ports.kernels.gluon_tiles import read_tile
from operators.local.templates.kernels.packed import (
    exponent_for,
    finite,
    power_of_two,
    store_parts,
    unscaled,
)


@gluon.jit
def pack_kernel(
    x_ptr,
    parts_ptr,
    exponents_ptr,
    SHAPE: gl.constexpr,
    STRIDE: gl.constexpr,
    PART_STRIDE: gl.constexpr,
    INPUT_PRECISION: gl.constexpr,
    LINES: gl.constexpr,
    DEPTH: gl.constexpr,
):
    """Cuts lines of an operand into parts, and stores the exponents of their factors.

    SHAPE is (lines, depth, depth of the parts). STRIDE is in the order batch, line, depth, and
    PART_STRIDE in the order part, batch, line, depth.
    """
    layout: gl.constexpr = side_by_side(LINES, DEPTH, STRIDE[2] <= STRIDE[1], gl.num_warps())
    lines = gl.program_id(0) * LINES + gl.arange(0, LINES, layout=gl.SliceLayout(1, layout))
    depth = gl.arange(0, DEPTH, layout=gl.SliceLayout(0, layout))[None, :]
    batch, inside = gl.program_id(1).to(gl.int64), (lines < SHAPE[0])[:, None]
    x_ptrs = x_ptr + batch * STRIDE[0] + lines.to(gl.int64)[:, None] * STRIDE[1]
    part_ptrs = parts_ptr + batch * PART_STRIDE[1] + lines.to(gl.int64)[:, None] * PART_STRIDE[2]
    largest = gl.zeros([LINES, DEPTH], gl.float32, layout=layout)
    for start in range(0, SHAPE[1], DEPTH):
        places = (start + depth).to(gl.int64)
        x = gl.load(x_ptrs + places * STRIDE[2], mask=inside & (places < SHAPE[1]), other=0.0)
        largest = gl.maximum(largest, finite(x))
    exponent = exponent_for(gl.max(largest, 1))
    gl.store(exponents_ptr + batch * SHAPE[0] + lines, exponent, mask=lines < SHAPE[0])
    for start in range(0, SHAPE[2], DEPTH):
        places = (start + depth).to(gl.int64)
        x = gl.load(x_ptrs + places * STRIDE[2], mask=inside & (places < SHAPE[1]), other=0.0)
        x *= power_of_two(exponent)[:, None]
        ptrs = part_ptrs + places * PART_STRIDE[3]  # there is room for all LINES
        store_parts(x, ptrs, places < SHAPE[2], PART_STRIDE[0], INPUT_PRECISION)


@gluon.jit
def read_parts(
    a,
    b,
    row,
    column,
    k,
    a_first,
    b_first,
    a_part,
    b_part,
    barriers,
    a_tiles,
    b_tiles,
    stage,
    A_BY_DEPTH: gl.constexpr,
    B_BY_DEPTH: gl.constexpr,
    PARTS: gl.constexpr,
):
    """Starts to read the tiles of all parts of a step to a stage.

    `a_first` and `b_first` are where the matrix begins in the first part, `a_part` and `b_part` how
    far the parts are apart: lines of the descriptor.
    """
    barrier = barriers.index(stage)
    mbarrier.expect(barrier, PARTS * (a.block_type.nbytes + b.block_type.nbytes))
    for part in gl.static_range(PARTS):
        a_line, b_line = a_first + part * a_part, b_first + part * b_part
        a_tile = a_tiles.index(stage * PARTS + part)
        b_tile = b_tiles.index(stage * PARTS + part)
        if A_BY_DEPTH:
            read_tile(a, a_line + row, k, barrier, a_tile)
        else:
            read_tile(a, a_line + k, row, barrier, a_tile)
        if B_BY_DEPTH:
            read_tile(b, b_line + column, k, barrier, b_tile)
        else:
            read_tile(b, b_line + k, column, barrier, b_tile)


@gluon.jit
def part_tile(tiles, number, IS_TURNED: gl.constexpr):
    """A tile as an operand."""
    tile = tiles.index(number)
    return tile.permute((1, 0)) if IS_TURNED else tile


@gluon.jit
def add_parts(
    a,
    b,
    stage,
    total,
    IS_FIRST: gl.constexpr,
    A_BY_DEPTH: gl.constexpr,
    B_BY_DEPTH: gl.constexpr,
    PARTS: gl.constexpr,
    PRODUCTS: gl.constexpr,
):
    """Starts to add the products of parts that are not too small, the smallest first.

    As many products as parts are of each part with its like. Those that were started before are
    done then.
    """
    IS_PAIRED: gl.constexpr = PRODUCTS == PARTS
    for skipped in gl.static_range(PARTS):
        for part in gl.static_range(1 if IS_PAIRED else PARTS - skipped):
            first = PARTS - 1 - skipped if IS_PAIRED else part
            other = PARTS - 1 - skipped - part
            total = warpgroup_mma(
                part_tile(a, stage * PARTS + first, not A_BY_DEPTH),
                part_tile(b, stage * PARTS + other, B_BY_DEPTH),
                total,
                use_acc=not IS_FIRST or skipped + part > 0,
                is_async=True,
            )
    return warpgroup_mma_wait(PRODUCTS, deps=(total,))


@gluon.jit
def packed_product_kernel(
    a,
    b,
    a_exponents_ptr,
    b_exponents_ptr,
    bias_ptr,
    out_ptr,
    SHAPE: gl.constexpr,
    A_STRIDE: gl.constexpr,
    B_STRIDE: gl.constexpr,
    A_ROOM: gl.constexpr,
    B_ROOM: gl.constexpr,
    A_PART: gl.constexpr,
    B_PART: gl.constexpr,
    BIAS_STRIDE: gl.constexpr,
    OUT_STRIDE: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    BLOCK_K: gl.constexpr,
    GROUP_M: gl.constexpr,
    PARTS: gl.constexpr,
    PRODUCTS: gl.constexpr,
    SUM_STEPS: gl.constexpr,
    STAGES: gl.constexpr,
):
    """Computes a @ b + bias of packed operands, whose parts have the descriptors a and b.

    SHAPE is (rows, columns, depth of the parts); strides of parts are as `pack_kernel` has them,
    and of the lines of a descriptor, ROOM is how many a matrix takes, and PART a part with all its
    matrices.
    """
    A_BY_DEPTH: gl.constexpr = A_STRIDE[3] == 1
    B_BY_DEPTH: gl.constexpr = B_STRIDE[3] == 1
    ROWS: gl.constexpr = (SHAPE[0] + BLOCK_M - 1) // BLOCK_M
    COLUMNS: gl.constexpr = (SHAPE[1] + BLOCK_N - 1) // BLOCK_N
    STEPS: gl.constexpr = SHAPE[2] // BLOCK_K
    matrix, tile = gl.program_id(0) // (ROWS * COLUMNS), gl.program_id(0) % (ROWS * COLUMNS)
    row, column = block_corner(tile, ROWS, COLUMNS, BLOCK_M, BLOCK_N, GROUP_M)
    a_matrix = matrix if A_STRIDE[1] > 0 else 0
    b_matrix = matrix if B_STRIDE[1] > 0 else 0
    a_first, b_first = a_matrix * A_ROOM, b_matrix * B_ROOM

    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES * PARTS] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES * PARTS] + b.block_type.shape, b.layout)  # noqa: RUF005
    barriers = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(barriers.index(stage), count=1)
    for begun in gl.static_range(STAGES - 1):
        if begun < STEPS:
            read_parts(
                a, b, row, column, begun * BLOCK_K, a_first, b_first, A_PART, B_PART, barriers,
                a_tiles, b_tiles, begun, A_BY_DEPTH, B_BY_DEPTH, PARTS,
            )  # fmt: skip
    sums: gl.constexpr = accumulator(BLOCK_M, BLOCK_N, gl.num_warps())
    total = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=sums)
    block = gl.zeros([BLOCK_M, BLOCK_N], gl.float32, layout=sums)
    for first in range(0, STEPS, SUM_STEPS):
        for inner in gl.static_range(SUM_STEPS):
            step = first + inner
            if STEPS % SUM_STEPS == 0 or step < STEPS:
                here, ahead = step % STAGES, step + STAGES - 1
                mbarrier.wait(barriers.index(here), step // STAGES & 1)
                block = add_parts(
                    a_tiles, b_tiles, here, block, inner == 0, A_BY_DEPTH, B_BY_DEPTH, PARTS,
                    PRODUCTS,
                )  # fmt: skip
                if ahead < STEPS:
                    read_parts(
                        a, b, row, column, ahead * BLOCK_K, a_first, b_first, A_PART, B_PART,
                        barriers, a_tiles, b_tiles, ahead % STAGES, A_BY_DEPTH, B_BY_DEPTH, PARTS,
                    )  # fmt: skip
        block = warpgroup_mma_wait(0, deps=(block,))
        total += block
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(barriers.index(stage))

    rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, sums))
    columns = column + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, sums))
    a_exponent = gl.load(
        a_exponents_ptr + a_matrix * SHAPE[0] + rows, mask=rows < SHAPE[0], other=0
    )
    b_exponent = gl.load(
        b_exponents_ptr + b_matrix * SHAPE[1] + columns, mask=columns < SHAPE[1], other=0
    )
    total = unscaled(total, a_exponent[:, None] + b_exponent[None, :])
    write_sums(
        total, bias_ptr, out_ptr, matrix.to(gl.int64), row, column, SHAPE, BIAS_STRIDE, OUT_STRIDE,
        BLOCK_M, BLOCK_N,
    )  # fmt: skip
