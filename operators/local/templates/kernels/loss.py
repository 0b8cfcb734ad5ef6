"""Losses: sums over everything in two stages, and the cross-entropy of rows.

Parts are summed in one order, whichever program is done first, so that a sum is always the same.
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.norm import in_row, row_start


@triton.jit
def loss_term(a, b, c):
    """The term of an element of each tensor. A program defines its own."""
    return (a - b) * (a - b)


@triton.jit
def loss_terms(a, b, c):
    """As `loss_term`, of which sums over a row are taken."""
    return a * b, a * a, b * b


@triton.jit
def loss_outcome(a, b, c):
    """The term of the sums of a row. A program defines its own."""
    return 1.0 - a / tl.sqrt(b * c)


@triton.jit
def loss_element(x_ptr, rows, columns, inside, STRIDE: tl.constexpr):
    """Elements of a tensor, 0 if there is none; STRIDE is by row and column."""
    value = 0.0
    if x_ptr is not None:
        x_ptrs = x_ptr + rows * STRIDE[0] + columns * STRIDE[1]
        value = tl.load(x_ptrs, inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def loss_parts_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    parts_ptr,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    C_STRIDE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One of PARTS parts of the sum of `loss_term` over SHAPE, (rows, columns)."""
    SIZE: tl.constexpr = SHAPE[0] * SHAPE[1]
    LENGTH: tl.constexpr = (SIZE + PARTS * BLOCK - 1) // (PARTS * BLOCK) * BLOCK
    part = tl.program_id(0).to(tl.int64) if PARTS * LENGTH >= 2**31 else tl.program_id(0)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, LENGTH, BLOCK):
        index = part * LENGTH + start + tl.arange(0, BLOCK)
        inside = index < SIZE
        rows, columns = index // SHAPE[1], index
        if SHAPE[0] > 1:
            columns = index % SHAPE[1]
        a = loss_element(a_ptr, rows, columns, inside, A_STRIDE)
        b = loss_element(b_ptr, rows, columns, inside, B_STRIDE)
        c = loss_element(c_ptr, rows, columns, inside, C_STRIDE)
        sums += tl.where(inside, loss_term(a, b, c), 0.0)
    tl.store(parts_ptr + tl.program_id(0), tl.sum(sums, 0))


@triton.jit
def loss_rows_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    parts_ptr,
    SHAPE: tl.constexpr,
    A_STRIDE: tl.constexpr,
    B_STRIDE: tl.constexpr,
    C_STRIDE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One of PARTS parts of the sum of `loss_outcome` over rows, of their sums of `loss_terms`."""
    LENGTH: tl.constexpr = (SHAPE[0] + PARTS - 1) // PARTS
    part = tl.program_id(0)
    total = tl.sum(tl.zeros([BLOCK], tl.float32), 0)
    for row in tl.range(part * LENGTH, tl.minimum(part * LENGTH + LENGTH, SHAPE[0])):
        first = tl.zeros([BLOCK], tl.float32)
        second = tl.zeros([BLOCK], tl.float32)
        third = tl.zeros([BLOCK], tl.float32)
        for start in tl.range(0, SHAPE[1], BLOCK):
            columns, place = start + tl.arange(0, BLOCK), tl.cast(row, tl.int64)
            inside = columns < SHAPE[1]
            a = loss_element(a_ptr, place, columns, inside, A_STRIDE)
            b = loss_element(b_ptr, place, columns, inside, B_STRIDE)
            c = loss_element(c_ptr, place, columns, inside, C_STRIDE)
            x, y, z = loss_terms(a, b, c)
            first += tl.where(inside, x, 0.0)
            second += tl.where(inside, y, 0.0)
            third += tl.where(inside, z, 0.0)
        total += loss_outcome(tl.sum(first, 0), tl.sum(second, 0), tl.sum(third, 0))
    tl.store(parts_ptr + part, total)


@triton.jit
def loss_kernel(parts_ptr, out_ptr, SCALE: tl.constexpr, PARTS: tl.constexpr):
    """The sum of PARTS parts, in one order, times SCALE."""
    offsets = tl.arange(0, 1)
    mask = offsets < 1
    value = tl.sum(tl.load(parts_ptr + tl.arange(0, PARTS)), 0) * SCALE + tl.zeros([1], tl.float32)
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def cross_entropy_kernel(
    x_ptr,
    target_ptr,
    out_ptr,
    VIEW: tl.constexpr,
    IGNORED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """log(sum(exp(x))) - x[target] of BLOCK_M rows; 0 if the target is IGNORED.

    VIEW is as for normalisation: (rows, classes, distance of the classes of a row). The running
    maximum and sum are those of the online softmax (Milakov and Gimelshein, 2018), each lane with
    its own.
    """
    offsets = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    mask = offsets < VIEW[0]
    x_ptrs = x_ptr + row_start(offsets, VIEW)[:, None]
    largest = tl.full([BLOCK_M, BLOCK_K], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    for start in tl.range(0, VIEW[1], BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K))[None, :]
        inside = mask[:, None] & (k < VIEW[1])
        x = tl.load(x_ptrs + in_row(k, VIEW), inside, other=float("-inf")).to(tl.float32)
        larger = tl.maximum(largest, x, propagate_nan=tl.PropagateNan.ALL)
        about = tl.where(larger == float("-inf"), 0.0, larger)
        total = total * tl.exp(largest - about) + tl.exp(x - about)
        largest = larger
    peak = tl.max(largest, 1)
    about = tl.where(peak == float("-inf"), 0.0, peak)
    weights = tl.where(largest == float("-inf"), 0.0, tl.exp(largest - about[:, None]))
    target = tl.load(target_ptr + offsets, mask, other=IGNORED).to(tl.int32)
    counted = mask & (target != IGNORED)
    chosen = tl.load(
        x_ptrs + in_row(tl.where(counted, target, 0)[:, None], VIEW), counted[:, None], other=0.0
    )
    chosen = tl.sum(chosen.to(tl.float32), 1)
    value = tl.log(tl.sum(total * weights, 1)) + peak - chosen
    value = tl.where(counted, value, 0.0)
    tl.store(out_ptr + offsets, value, mask)
