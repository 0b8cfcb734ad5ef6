"""Running sums and products along rows, a block at a time with a carry.

A tensor is OUTER x SIZE x INNER, of which OUTER * INNER rows of SIZE elements are scanned; those of
a row lie INNER apart. VIEW is (number of rows, SIZE, INNER).
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.norm import in_row, row_start


@triton.jit
def scan_kernel(
    x_ptr,
    mask_ptr,
    out_ptr,
    VIEW: tl.constexpr,
    PRODUCT: tl.constexpr,
    REVERSE: tl.constexpr,
    EXCLUSIVE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """BLOCK_M rows, from their ends if REVERSE. EXCLUSIVE: of the elements before each."""
    IDENTITY: tl.constexpr = 1.0 if PRODUCT else 0.0
    BLOCKS: tl.constexpr = (VIEW[1] + BLOCK_K - 1) // BLOCK_K
    SHIFT: tl.constexpr = (1 if REVERSE else -1) if EXCLUSIVE else 0
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    starts, rows_in = row_start(rows, VIEW)[:, None], (rows < VIEW[0])[:, None]
    lanes = tl.arange(0, BLOCK_K)
    last = lanes == (0 if REVERSE else BLOCK_K - 1)
    carry = tl.full([BLOCK_M], IDENTITY, tl.float32)
    for step in tl.range(0, BLOCKS):
        block = BLOCKS - 1 - step if REVERSE else step
        k = (block * BLOCK_K + lanes)[None, :]
        read = k + SHIFT
        inside = rows_in & (read >= 0) & (read < VIEW[1])
        place = starts + in_row(read, VIEW)
        x = tl.load(x_ptr + place, inside, other=IDENTITY).to(tl.float32)
        if mask_ptr is not None:
            x = x * tl.load(mask_ptr + place, inside, other=1).to(tl.float32)
        x = tl.where(inside, x, IDENTITY)
        if PRODUCT:
            value = tl.cumprod(x, 1, reverse=REVERSE) * carry[:, None]
        else:
            value = tl.cumsum(x, 1, reverse=REVERSE) + carry[:, None]
        carry = tl.sum(tl.where(last[None, :], value, 0.0), 1)
        mask, offsets = rows_in & (k < VIEW[1]), starts + in_row(k, VIEW)
        tl.store(out_ptr + offsets, value, mask)
