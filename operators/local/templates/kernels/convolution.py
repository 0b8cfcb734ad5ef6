"""Convolutions over one to three dimensions, plain and transposed, that read their input in place.

A convolution is a product of positions by (taps and channels), gathered from the input tile by
tile, with (taps and channels) by filters: implicit GEMM (Chetlur et al., cuDNN, 2014). With few
filters in a group there is nothing for tensor cores to do, and sums are made one by one.

Threads that are neighbours get places that are neighbours. Triton sees to that along the axis of a
block in which elements lie side by side; if it sees none, as with images of odd widths, it takes
the last axis (3.7) or the first (3.6). So places of images are declared to lie side by side. It is
not quite so if a row of them ends, and for phases of a transposed convolution. But then no offset
is known to be a multiple of more than divides a row's length, or of anything: so nothing reads or
stores two elements at once because of it.

A transposed convolution gathers as well. Outputs that are congruent modulo the stride are a phase:
they meet the same taps and lie side by side in the input, so nothing is multiplied by the zeros
that the stride would put between inputs.

Sizes are compile-time constants, CHANNELS and FILTERS those of a group. Sizes in space are (depth,
height, width); strides of tensors are in elements, in the order (batch, group, channel or filter,
depth, height, width), those of weights (group, filter, channel, depth, height, width).
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.matmul import grouped, with_bias


@triton.jit
def conv_place(index, SIZE: tl.constexpr):
    """(batch, depth, height, width) of the index-th position of SIZE positions each."""
    width = index % SIZE[2]
    height = index // SIZE[2] % SIZE[1]
    depth = index // (SIZE[2] * SIZE[1]) % SIZE[0]
    return index // (SIZE[2] * SIZE[1] * SIZE[0]), depth, height, width


@triton.jit
def conv_inside(depth, height, width, SIZE: tl.constexpr):
    """Whether places in space are of an input of that size."""
    inside = (depth >= 0) & (depth < SIZE[0]) & (height >= 0) & (height < SIZE[1])
    return inside & (width >= 0) & (width < SIZE[2])


@triton.jit
def conv_offset(depth, height, width, STRIDE: tl.constexpr):
    """Where places in space lie, by the last three of six strides."""
    return depth * STRIDE[3] + height * STRIDE[4] + width * STRIDE[5]


@triton.jit
def conv_tile(
    x_ptrs,
    weight_ptrs,
    rows_in,
    columns_in,
    depth,
    height,
    width,
    first_depth,
    first_height,
    first_width,
    CHANNELS: tl.constexpr,
    INPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    TAPS: tl.constexpr,
    SPREAD: tl.constexpr,
    STEP: tl.constexpr,
    WALK: tl.constexpr,
    PLACES: tl.constexpr,
    X_STRIDE: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    FLAT: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Sums over channels and taps, a row for each filter and a column for each position.

    Position i begins at (depth, height, width)[i] of the input and at tap (first_...) of the
    kernel; a tap further is STEP inputs and SPREAD taps of the kernel further, and the next of
    PLACES is WALK inputs further. A slice of the sum runs over channels of one tap; with FLAT,
    which is for few channels, over taps as well.
    """
    PER_CHANNEL: tl.constexpr = TAPS[0] * TAPS[1] * TAPS[2]
    SLICES: tl.constexpr = (CHANNELS + BLOCK_K - 1) // BLOCK_K
    COUNT: tl.constexpr = (
        (CHANNELS * PER_CHANNEL + BLOCK_K - 1) // BLOCK_K if FLAT else SLICES * PER_CHANNEL
    )
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for at in tl.range(0, COUNT):
        if FLAT:
            place = at * BLOCK_K + tl.arange(0, BLOCK_K)
            tap, channel = place % PER_CHANNEL, place // PER_CHANNEL
        else:
            tap = tl.full([1], at // SLICES, tl.int32)
            channel = at % SLICES * BLOCK_K + tl.arange(0, BLOCK_K)
        _, tap_depth, tap_height, tap_width = conv_place(tap, TAPS)
        d = depth[None, :] + (tap_depth * STEP[0])[:, None]
        h = height[None, :] + (tap_height * STEP[1])[:, None]
        w = width[None, :] + (tap_width * STEP[2])[:, None]
        inside = conv_inside(d, h, w, INPUT)
        kernel_d = first_depth + tap_depth * SPREAD[0]
        kernel_h = first_height + tap_height * SPREAD[1]
        kernel_w = first_width + tap_width * SPREAD[2]
        met = (kernel_d < KERNEL[0]) & (kernel_h < KERNEL[1]) & (kernel_w < KERNEL[2])
        met = met & (channel < CHANNELS)
        offsets = conv_offset(d, h, w, X_STRIDE) + (channel * X_STRIDE[2])[:, None]
        ptrs = x_ptrs[None, :] + offsets
        if WALK[2] == 1 and X_STRIDE[5] == 1 and PLACES[2] > 1:
            ptrs = tl.max_contiguous(ptrs, [1, BLOCK_M])
        mask = rows_in[None, :] & inside & met[:, None]
        x = tl.load(ptrs, mask=mask, other=0.0)
        offsets = conv_offset(kernel_d, kernel_h, kernel_w, WEIGHT_STRIDE)
        offsets = offsets + channel * WEIGHT_STRIDE[2]
        mask = met[:, None] & columns_in[None, :]
        weight = tl.load(weight_ptrs[None, :] + offsets[:, None], mask=mask, other=0.0)
        sums = tl.dot(tl.trans(x), weight, sums, input_precision=INPUT_PRECISION)
    return tl.trans(sums)


@triton.jit
def conv_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    INPUT: tl.constexpr,
    OUTPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    X_STRIDE: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FLAT: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """A tile of the output: BLOCK_M positions by BLOCK_N filters of a group."""
    POSITIONS: tl.constexpr = BATCH * OUTPUT[0] * OUTPUT[1] * OUTPUT[2]
    ROWS: tl.constexpr = (POSITIONS + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (FILTERS + BLOCK_N - 1) // BLOCK_N
    tile_row, tile_column = grouped(tl.program_id(0), ROWS, COLUMNS, GROUP_M)
    group = tl.program_id(1).to(tl.int64)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, depth, height, width = conv_place(rows, OUTPUT)
    value = conv_tile(
        x_ptr + group * X_STRIDE[1] + batch.to(tl.int64) * X_STRIDE[0],
        weight_ptr + group * WEIGHT_STRIDE[0] + columns * WEIGHT_STRIDE[1],
        rows < POSITIONS,
        columns < FILTERS,
        depth * STRIDE[0] - PADDING[0],
        height * STRIDE[1] - PADDING[1],
        width * STRIDE[2] - PADDING[2],
        0,
        0,
        0,
        CHANNELS,
        INPUT,
        KERNEL,
        KERNEL,
        (1, 1, 1),
        DILATION,
        STRIDE,
        OUTPUT,
        X_STRIDE,
        WEIGHT_STRIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        FLAT,
        INPUT_PRECISION,
    )
    mask = (rows < POSITIONS)[None, :] & (columns < FILTERS)[:, None]
    channels = (group * FILTERS + columns)[:, None]
    value = with_bias(value, bias_ptr, channels, (columns < FILTERS)[:, None])
    offsets = conv_offset(depth, height, width, OUT_STRIDE)
    offsets = offsets + batch.to(tl.int64) * OUT_STRIDE[0] + group * OUT_STRIDE[1]
    offsets = offsets[None, :] + (columns * OUT_STRIDE[2])[:, None]
    if OUT_STRIDE[5] == 1 and OUTPUT[2] > 1:
        offsets = tl.max_contiguous(offsets, [1, BLOCK_M])
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def conv_phase(
    phase,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
):
    """The first tap that outputs of a phase meet, and where in the input its position 0 does.

    An output o meets input i at tap k where o + PADDING = STRIDE * i + DILATION * k. COMMON is the
    greatest common divisor of STRIDE and DILATION, INVERSE that of DILATION / COMMON modulo
    STRIDE / COMMON. A phase that meets no tap is given one that the kernel does not have.
    """
    reached = phase + PADDING
    tap = reached // COMMON * INVERSE % (STRIDE // COMMON)
    place = (reached - tap * DILATION) // STRIDE
    return tl.where(reached % COMMON == 0, tap, KERNEL), place


@triton.jit
def conv_phases(
    index,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
):
    """The index-th phase: in each dimension its number, its first tap, and where it meets that."""
    _, d, h, w = conv_place(index, STRIDE)
    tap_d, place_d = conv_phase(
        d, KERNEL[0], STRIDE[0], PADDING[0], DILATION[0], COMMON[0], INVERSE[0]
    )
    tap_h, place_h = conv_phase(
        h, KERNEL[1], STRIDE[1], PADDING[1], DILATION[1], COMMON[1], INVERSE[1]
    )
    tap_w, place_w = conv_phase(
        w, KERNEL[2], STRIDE[2], PADDING[2], DILATION[2], COMMON[2], INVERSE[2]
    )
    return d, h, w, tap_d, tap_h, tap_w, place_d, place_h, place_w


@triton.jit
def conv_transpose_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    INPUT: tl.constexpr,
    OUTPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
    PLACES: tl.constexpr,
    TAPS: tl.constexpr,
    SPREAD: tl.constexpr,
    STEP: tl.constexpr,
    X_STRIDE: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    FLAT: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """A tile of a phase of the output; PLACES are positions of a phase, TAPS are those it meets.

    Phases of a tile come one after the other: they read the same, and store side by side.
    """
    COUNT: tl.constexpr = STRIDE[0] * STRIDE[1] * STRIDE[2]
    POSITIONS: tl.constexpr = BATCH * PLACES[0] * PLACES[1] * PLACES[2]
    ROWS: tl.constexpr = (POSITIONS + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (FILTERS + BLOCK_N - 1) // BLOCK_N
    tile_row, tile_column = grouped(tl.program_id(0) // COUNT, ROWS, COLUMNS, GROUP_M)
    group = tl.program_id(1).to(tl.int64)
    phase_d, phase_h, phase_w, tap_d, tap_h, tap_w, place_d, place_h, place_w = conv_phases(
        tl.program_id(0) % COUNT, KERNEL, STRIDE, PADDING, DILATION, COMMON, INVERSE
    )
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, depth, height, width = conv_place(rows, PLACES)
    value = conv_tile(
        x_ptr + group * X_STRIDE[1] + batch.to(tl.int64) * X_STRIDE[0],
        weight_ptr + group * WEIGHT_STRIDE[0] + columns * WEIGHT_STRIDE[1],
        rows < POSITIONS,
        columns < FILTERS,
        depth + place_d,
        height + place_h,
        width + place_w,
        tap_d,
        tap_h,
        tap_w,
        CHANNELS,
        INPUT,
        KERNEL,
        TAPS,
        SPREAD,
        STEP,
        (1, 1, 1),
        PLACES,
        X_STRIDE,
        WEIGHT_STRIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        FLAT,
        INPUT_PRECISION,
    )
    depth = depth * STRIDE[0] + phase_d
    height = height * STRIDE[1] + phase_h
    width = width * STRIDE[2] + phase_w
    mask = (rows < POSITIONS) & (depth < OUTPUT[0]) & (height < OUTPUT[1]) & (width < OUTPUT[2])
    mask = mask[None, :] & (columns < FILTERS)[:, None]
    channels = (group * FILTERS + columns)[:, None]
    value = with_bias(value, bias_ptr, channels, (columns < FILTERS)[:, None])
    offsets = conv_offset(depth, height, width, OUT_STRIDE)
    offsets = offsets + batch.to(tl.int64) * OUT_STRIDE[0] + group * OUT_STRIDE[1]
    offsets = offsets[None, :] + (columns * OUT_STRIDE[2])[:, None]
    if OUT_STRIDE[5] == 1 and PLACES[2] > 1:
        offsets = tl.max_contiguous(offsets, [1, BLOCK_M])
    tl.store(out_ptr + offsets, value, mask)


@triton.jit
def conv_direct_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    INPUT: tl.constexpr,
    OUTPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    X_STRIDE: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """BLOCK_M positions by BLOCK_N filters, of any groups, one product after the other.

    For groups of few filters, such as those of depthwise convolutions.
    """
    PER_CHANNEL: tl.constexpr = KERNEL[0] * KERNEL[1] * KERNEL[2]
    POSITIONS: tl.constexpr = BATCH * OUTPUT[0] * OUTPUT[1] * OUTPUT[2]
    COLUMNS: tl.constexpr = (GROUPS * FILTERS + BLOCK_N - 1) // BLOCK_N
    rows = tl.program_id(0) // COLUMNS * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(0) % COLUMNS * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, depth, height, width = conv_place(rows, OUTPUT)
    group, column, columns_in = columns // FILTERS, columns % FILTERS, columns < GROUPS * FILTERS
    x_rows = x_ptr + batch.to(tl.int64) * X_STRIDE[0]
    weight_columns = weight_ptr + group * WEIGHT_STRIDE[0] + column * WEIGHT_STRIDE[1]
    value = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for at in tl.range(0, CHANNELS * PER_CHANNEL):
        channel, tap_d, tap_h, tap_w = conv_place(at, KERNEL)
        d = depth * STRIDE[0] - PADDING[0] + tap_d * DILATION[0]
        h = height * STRIDE[1] - PADDING[1] + tap_h * DILATION[1]
        w = width * STRIDE[2] - PADDING[2] + tap_w * DILATION[2]
        inside = conv_inside(d, h, w, INPUT)
        x_ptrs = x_rows + conv_offset(d, h, w, X_STRIDE) + channel * X_STRIDE[2]
        mask = (inside & (rows < POSITIONS))[None, :] & columns_in[:, None]
        x_ptrs = x_ptrs[None, :] + (group * X_STRIDE[1])[:, None]
        if STRIDE[2] == 1 and X_STRIDE[5] == 1 and OUTPUT[2] > 1:
            x_ptrs = tl.max_contiguous(x_ptrs, [1, BLOCK_M])
        x = tl.load(x_ptrs, mask=mask, other=0.0)
        offset = conv_offset(tap_d, tap_h, tap_w, WEIGHT_STRIDE) + channel * WEIGHT_STRIDE[2]
        weight = tl.load(weight_columns + offset, mask=columns_in, other=0.0)
        value += x.to(tl.float32) * weight.to(tl.float32)[:, None]
    mask = (rows < POSITIONS)[None, :] & columns_in[:, None]
    channels = columns[:, None]
    value = with_bias(value, bias_ptr, channels, columns_in[:, None])
    offsets = conv_offset(depth, height, width, OUT_STRIDE)
    offsets = offsets + batch.to(tl.int64) * OUT_STRIDE[0]
    offsets = offsets[None, :] + (group * OUT_STRIDE[1] + column * OUT_STRIDE[2])[:, None]
    if OUT_STRIDE[5] == 1 and OUTPUT[2] > 1:
        offsets = tl.max_contiguous(offsets, [1, BLOCK_M])
    tl.store(out_ptr + offsets, value, mask)
