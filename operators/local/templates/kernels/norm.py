"""Normalisation of rows: by mean and variance, by a sum of squares (RMS, L2), of values (L1).

A tensor is OUTER x SIZE x INNER, of which OUTER * INNER rows of SIZE elements are normalised; those
of a row lie INNER apart. VIEW is (number of rows, SIZE, INNER). Weight and bias of element k in row
r are those at (r % groups) * channels + k // area, for AFFINE = (groups, channels, area).

A variance is that about a number near the mean, less the square of the distance between the two:
with one pass the number is the mean of the row's first block, with two the row's mean itself
(the corrected two-pass algorithm, Chan, Golub and LeVeque, 1983).
"""

import triton
import triton.language as tl


@triton.jit
def row_start(rows, VIEW: tl.constexpr):
    """Where rows begin; in 64 bits if 32 are too few."""
    if VIEW[0] * VIEW[1] >= 2**31:
        rows = rows.to(tl.int64)
    return rows // VIEW[2] * (VIEW[1] * VIEW[2]) + rows % VIEW[2]


@triton.jit
def in_row(k, VIEW: tl.constexpr):
    """Where elements of a row lie, from its first one on."""
    if VIEW[1] * VIEW[2] >= 2**31:
        k = k.to(tl.int64)
    return k * VIEW[2]


@triton.jit
def norm_term(x, KIND: tl.constexpr):
    """The term of an element."""
    return tl.abs(x) if KIND == "l1" else x * x


@triton.jit
def norm_factor(sums, KIND: tl.constexpr, SHARE: tl.constexpr, EPS: tl.constexpr):
    """The factor of elements, from a row's sum of terms."""
    length = sums * SHARE + EPS
    if KIND != "l1":
        length = tl.sqrt(length)
    return 1.0 / length


@triton.jit
def norm_sums(
    x_ptrs,
    about,
    rows_in,
    start,
    stop,
    VIEW: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Sums over elements in [start, stop) of rows: of their distances from a number, of terms."""
    sums = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    terms = tl.zeros([BLOCK_M, BLOCK_K], tl.float32)
    for first in tl.range(start, stop, BLOCK_K):
        k = (first + tl.arange(0, BLOCK_K))[None, :]
        inside = rows_in & (k < stop)
        x = tl.load(x_ptrs + in_row(k, VIEW), inside, other=0.0).to(tl.float32)
        x = tl.where(inside, x - about[:, None], 0.0)
        sums += x
        terms += norm_term(x, KIND)
    return tl.sum(sums, 1), tl.sum(terms, 1)


@triton.jit
def norm_moments(
    x_ptrs,
    rows_in,
    start,
    stop,
    VIEW: tl.constexpr,
    KIND: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PASSES: tl.constexpr,
):
    """Means over elements in [start, stop), 0 if they are not asked for; sums of terms."""
    mean = tl.zeros([BLOCK_M], tl.float32)
    terms = tl.zeros([BLOCK_M], tl.float32)
    if KIND == "layer":
        count = tl.maximum(stop - start, 1).to(tl.float32)
        first = tl.minimum(stop, start + BLOCK_K)
        sums, _ = norm_sums(x_ptrs, mean, rows_in, start, first, VIEW, KIND, BLOCK_M, BLOCK_K)
        mean = sums / tl.maximum(first - start, 1).to(tl.float32)
        for _ in tl.static_range(PASSES):
            sums, terms = norm_sums(
                x_ptrs, mean, rows_in, start, stop, VIEW, KIND, BLOCK_M, BLOCK_K
            )
            terms -= sums * (sums / count)
            mean += sums / count
        terms = tl.where(terms < 0, 0.0, terms)
    else:
        _, terms = norm_sums(x_ptrs, mean, rows_in, start, stop, VIEW, KIND, BLOCK_M, BLOCK_K)
    return mean, terms


@triton.jit
def norm_output(
    x,
    mean,
    factor,
    rows,
    k,
    weight_ptr,
    bias_ptr,
    inside,
    AFFINE: tl.constexpr,
):
    """Normalised elements, with weight and bias if there are any."""
    value = (x - mean) * factor
    place = rows % AFFINE[0] * AFFINE[1] + k // AFFINE[2]
    if weight_ptr is not None:
        value *= tl.load(weight_ptr + place, inside, other=0.0).to(tl.float32)
    if bias_ptr is not None:
        value += tl.load(bias_ptr + place, inside, other=0.0).to(tl.float32)
    return value


@triton.jit
def norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    VIEW: tl.constexpr,
    AFFINE: tl.constexpr,
    KIND: tl.constexpr,
    SHARE: tl.constexpr,
    EPS: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr,
):
    """BLOCK_M rows that are held whole. WIDTH is the power of two that holds a row."""
    rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    k = tl.arange(0, WIDTH)[None, :]
    mask = (rows < VIEW[0]) & (k < VIEW[1])
    offsets = row_start(rows, VIEW) + in_row(k, VIEW)
    x = tl.load(x_ptr + offsets, mask, other=0.0).to(tl.float32)
    mean = tl.zeros([BLOCK_M, 1], tl.float32)
    if KIND == "layer":
        mean = tl.sum(x, 1, keep_dims=True) / VIEW[1]
    terms = norm_term(tl.where(mask, x - mean, 0.0), KIND)
    factor = norm_factor(tl.sum(terms, 1, keep_dims=True), KIND, SHARE, EPS)
    value = norm_output(x, mean, factor, rows, k, weight_ptr, bias_ptr, mask, AFFINE)
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def norm_looped_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    VIEW: tl.constexpr,
    AFFINE: tl.constexpr,
    KIND: tl.constexpr,
    SHARE: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PASSES: tl.constexpr,
):
    """BLOCK_M rows, BLOCK_K elements at a time: read for their sums, then once more."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    starts, rows_in = row_start(rows, VIEW)[:, None], (rows < VIEW[0])[:, None]
    stop = tl.full([], VIEW[1], tl.int32)
    mean, terms = norm_moments(
        x_ptr + starts, rows_in, stop - stop, stop, VIEW, KIND, BLOCK_M, BLOCK_K, PASSES
    )
    factor = norm_factor(terms, KIND, SHARE, EPS)
    for start in tl.range(0, VIEW[1], BLOCK_K):
        k = (start + tl.arange(0, BLOCK_K))[None, :]
        mask = rows_in & (k < VIEW[1])
        offsets = starts + in_row(k, VIEW)
        x = tl.load(x_ptr + offsets, mask, other=0.0).to(tl.float32)
        value = norm_output(
            x,
            mean[:, None],
            factor[:, None],
            rows[:, None],
            k,
            weight_ptr,
            bias_ptr,
            mask,
            AFFINE,
        )
        tl.store(out_ptr + offsets, value, mask)


@triton.jit
def norm_parts_kernel(
    x_ptr,
    parts_ptr,
    VIEW: tl.constexpr,
    KIND: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PASSES: tl.constexpr,
):
    """Mean and sum of terms of one of PARTS parts of a row; `norm_apply_kernel` joins them.

    PARTS means of a row lie before its PARTS sums.
    """
    LENGTH: tl.constexpr = (VIEW[1] + PARTS * 128 - 1) // (PARTS * 128) * 128
    row, part = tl.program_id(0), tl.program_id(1)
    if PARTS * LENGTH + BLOCK_K >= 2**31:
        part = part.to(tl.int64)
    start = tl.minimum(part * LENGTH, VIEW[1])
    x_ptrs = x_ptr + row_start(row + tl.arange(0, 1), VIEW)[:, None]
    stop = tl.minimum(start + LENGTH, VIEW[1])
    rows_in = tl.full([1, 1], True, tl.int1)
    mean, terms = norm_moments(x_ptrs, rows_in, start, stop, VIEW, KIND, 1, BLOCK_K, PASSES)
    places = parts_ptr + row * 2 * PARTS + part + tl.arange(0, 1)
    tl.store(places, mean)
    tl.store(places + PARTS, terms)


@triton.jit
def norm_apply_kernel(
    x_ptr,
    parts_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    VIEW: tl.constexpr,
    AFFINE: tl.constexpr,
    KIND: tl.constexpr,
    SHARE: tl.constexpr,
    EPS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK elements of a row, normalised by the combined sums of its PARTS."""
    LENGTH: tl.constexpr = (VIEW[1] + PARTS * 128 - 1) // (PARTS * 128) * 128
    BLOCKS: tl.constexpr = (VIEW[1] + BLOCK - 1) // BLOCK
    row = tl.program_id(0) // BLOCKS
    block, parts = tl.program_id(0) % BLOCKS, tl.arange(0, PARTS)
    if BLOCKS * BLOCK >= 2**31:
        block = block.to(tl.int64)
    if PARTS * LENGTH >= 2**31:
        parts = parts.to(tl.int64)
    k = block * BLOCK + tl.arange(0, BLOCK)
    means = tl.load(parts_ptr + row * 2 * PARTS + parts)
    terms = tl.sum(tl.load(parts_ptr + row * 2 * PARTS + PARTS + parts), 0)
    counts = tl.maximum(tl.minimum(VIEW[1] - parts * LENGTH, LENGTH), 0).to(tl.float32)
    mean = tl.sum(means * counts, 0) / VIEW[1]
    if KIND == "layer":
        terms += tl.sum(counts * (means - mean) * (means - mean), 0)
    factor = norm_factor(terms, KIND, SHARE, EPS)
    mask = k < VIEW[1]
    offsets = row_start(row, VIEW) + in_row(k, VIEW)
    x = tl.load(x_ptr + offsets, mask, other=0.0).to(tl.float32)
    value = norm_output(x, mean, factor, row, k, weight_ptr, bias_ptr, mask, AFFINE)
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def batch_norm_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    SHAPE: tl.constexpr,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK elements of a channel, by known statistics. SHAPE is (batch, channels, area)."""
    BLOCKS: tl.constexpr = (SHAPE[2] + BLOCK - 1) // BLOCK
    plane = tl.program_id(0) // BLOCKS
    place = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    channel = plane % SHAPE[1]
    factor = 1.0 / tl.sqrt(tl.load(variance_ptr + channel).to(tl.float32) + EPS)
    if weight_ptr is not None:
        factor *= tl.load(weight_ptr + channel).to(tl.float32)
    mask = place < SHAPE[2]
    start = plane.to(tl.int64) * SHAPE[2]
    offsets = start + place
    x = tl.load(x_ptr + offsets, mask, other=0.0).to(tl.float32)
    value = (x - tl.load(mean_ptr + channel).to(tl.float32)) * factor
    if bias_ptr is not None:
        value += tl.load(bias_ptr + channel).to(tl.float32)
    tl.store(out_ptr + offsets, value, mask)
