"""Convolutions of few filters: outputs that lie side by side are columns of one product.

A product of few columns takes about as long as one of more, since all positions have to be read for
it. So PHASES outputs in each direction, of all filters, are the columns for a position, which has
the inputs that any of them meets: a window. Where an output does not meet an input of the window,
its filter has a zero. Of a transposed convolution PHASES are multiples of its stride, so that the
outputs between two inputs, which meet different taps, are made at once.

Columns are in the order (phase in depth, phase in height, filter, phase in width). If phases in
width are a power of two, they are put beside the positions before the result is stored, so that
neighbours in memory are neighbours in the block. Images, parts and runs are as in
`conv_packed_kernel`, with windows in the place of taps.
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.conv_packed import sum_runs
from operators.local.templates.kernels.convolution import conv_offset, conv_place
from operators.local.templates.kernels.matmul import grouped, with_bias
from operators.local.templates.kernels.packed import (
    exponent_for,
    finite,
    power_of_two,
    store_parts,
    unscaled,
)


@triton.jit
def met_tap(reached, DILATION: tl.constexpr, KERNEL: tl.constexpr):
    """The tap that lies so many inputs away, and whether there is one."""
    tap = reached // DILATION
    return tap, (reached >= 0) & (reached % DILATION == 0) & (tap < KERNEL)


@triton.jit
def conv_window_kernel(
    weight_ptr,
    parts_ptr,
    exponents_ptr,
    CHANNELS: tl.constexpr,
    FILTERS: tl.constexpr,
    KERNEL: tl.constexpr,
    DILATION: tl.constexpr,
    PHASES: tl.constexpr,
    FIRST: tl.constexpr,
    BY_PHASE: tl.constexpr,
    BY_INPUT: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Cuts the filter of a column, BLOCK elements of its window at most, into parts.

    The grid is (columns, groups). In each direction the output of a phase meets an input of the
    window at the tap (FIRST + phase * BY_PHASE + input * BY_INPUT) / DILATION, if there is one.
    """
    SIZE: tl.constexpr = RUNS[0] * RUNS[1] * RUNS[2] * RUN[3]
    column, group = tl.program_id(0), tl.program_id(1)
    rest, phase_width = column // PHASES[2], column % PHASES[2]
    rest, number = rest // FILTERS, rest % FILTERS
    phase_depth, phase_height = rest // PHASES[1], rest % PHASES[1]
    at = tl.arange(0, BLOCK)
    _, depth, height, width = conv_place(at // RUN[3], RUNS)
    channel = at % RUN[3] % RUN[1]
    width = width * RUN[0] + at % RUN[3] // RUN[1]
    depth, in_depth = met_tap(
        FIRST[0] + phase_depth * BY_PHASE[0] + depth * BY_INPUT[0], DILATION[0], KERNEL[0]
    )
    height, in_height = met_tap(
        FIRST[1] + phase_height * BY_PHASE[1] + height * BY_INPUT[1], DILATION[1], KERNEL[1]
    )
    width, in_width = met_tap(
        FIRST[2] + phase_width * BY_PHASE[2] + width * BY_INPUT[2], DILATION[2], KERNEL[2]
    )
    is_tap = in_depth & in_height & in_width & (at < SIZE) & (channel < CHANNELS)
    is_tap = is_tap & (at % RUN[3] < RUN[0] * RUN[1])
    offsets = conv_offset(depth, height, width, WEIGHT_STRIDE) + channel * WEIGHT_STRIDE[2]
    weight_ptr += group * WEIGHT_STRIDE[0] + number * WEIGHT_STRIDE[1]
    x = tl.load(weight_ptr + offsets, mask=is_tap, other=0.0)
    exponent = exponent_for(tl.max(finite(x), 0))
    tl.store(exponents_ptr + group * tl.num_programs(0) + column, exponent)
    ptrs = parts_ptr + group * PART_STRIDE[1] + column * PART_STRIDE[3]
    x *= power_of_two(exponent)
    store_parts(x, ptrs + at, at < SIZE, PART_STRIDE[0], INPUT_PRECISION)


@triton.jit
def conv_wide_kernel(
    images_ptr,
    filters_ptr,
    image_exponents_ptr,
    filter_exponents_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    FILTERS: tl.constexpr,
    OUT_SIZE: tl.constexpr,
    PHASES: tl.constexpr,
    SIDE: tl.constexpr,
    PLACES: tl.constexpr,
    WALK: tl.constexpr,
    START: tl.constexpr,
    STEP: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
    IMAGE_STRIDE: tl.constexpr,
    FILTER_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """A tile of BLOCK_M positions by BLOCK_N columns of a group; the grid is (tiles, groups).

    From one place to the next it is WALK inputs; the first has its window at START. SIDE is the
    number of phases in width, or 1 if that is no power of two. OUT_STRIDE is as in `conv_kernel`.
    """
    POSITIONS: tl.constexpr = BATCH * PLACES[0] * PLACES[1] * PLACES[2]
    ACROSS: tl.constexpr = PHASES[0] * PHASES[1]
    COUNT: tl.constexpr = ACROSS * FILTERS * PHASES[2]
    ROWS: tl.constexpr = (POSITIONS + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (COUNT + BLOCK_N - 1) // BLOCK_N
    tile_row, tile_column = grouped(tl.program_id(0), ROWS, COLUMNS, GROUP_M)
    group = tl.program_id(1).to(tl.int64)
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, depth, height, width = conv_place(rows, PLACES)
    batch = tl.minimum(batch, BATCH - 1).to(tl.int64)  # places beyond the last are read, not stored
    first = conv_offset(
        depth * WALK[0] + START[0], height * WALK[1] + START[1], width * WALK[2] + START[2],
        IMAGE_STRIDE,
    )  # fmt: skip
    depths = tl.arange(0, BLOCK_K)
    image_ptrs = images_ptr + batch * IMAGE_STRIDE[1] + group * IMAGE_STRIDE[2] + first
    column_offsets = tl.minimum(columns, COUNT - 1) * FILTER_STRIDE[3]  # as with places
    filter_ptrs = filters_ptr + group * FILTER_STRIDE[1] + column_offsets
    value = sum_runs(
        image_ptrs[:, None] + depths[None, :],
        filter_ptrs[None, :] + depths[:, None],
        STEP,
        RUNS,
        RUN,
        IMAGE_STRIDE,
        FILTER_STRIDE,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        INPUT_PRECISION,
    )
    image_exponent = tl.load(image_exponents_ptr + batch * tl.num_programs(1) + group)
    filter_exponent = tl.load(filter_exponents_ptr + group * COUNT + columns, columns < COUNT, 0)
    value = unscaled(value, image_exponent[:, None] + filter_exponent[None, :])
    value = tl.reshape(value, [BLOCK_M, BLOCK_N // SIDE, SIDE])
    value = tl.reshape(tl.permute(value, (1, 0, 2)), [BLOCK_N // SIDE, BLOCK_M * SIDE])
    place = tile_row * (BLOCK_M * SIDE) + tl.arange(0, BLOCK_M * SIDE)
    batch, depth, height, width = conv_place(place // SIDE, PLACES)
    column = tile_column * (BLOCK_N // SIDE) + tl.arange(0, BLOCK_N // SIDE)
    if PHASES[2] == SIDE:
        width = (width * SIDE + place % SIDE)[None, :]
    else:
        width = width[None, :] * PHASES[2] + (column % PHASES[2])[:, None]
        column = column // PHASES[2]
    channels, is_column = group * FILTERS + column % FILTERS, column // FILTERS < ACROSS
    depth = depth[None, :] * PHASES[0] + (column // (FILTERS * PHASES[1]))[:, None]
    height = height[None, :] * PHASES[1] + (column // FILTERS % PHASES[1])[:, None]
    mask = (batch < BATCH)[None, :] & is_column[:, None]
    mask = mask & (depth < OUT_SIZE[0]) & (height < OUT_SIZE[1]) & (width < OUT_SIZE[2])
    value = with_bias(value, bias_ptr, channels[:, None], is_column[:, None])
    offsets = batch.to(tl.int64)[None, :] * OUT_STRIDE[0] + group * OUT_STRIDE[1]
    offsets = offsets + (column % FILTERS)[:, None] * OUT_STRIDE[2]
    offsets = offsets + conv_offset(depth, height, width, OUT_STRIDE)
    if OUT_STRIDE[5] == 1 and PHASES[2] == SIDE:
        offsets = tl.max_contiguous(offsets, [1, BLOCK_M * SIDE])
    tl.store(out_ptr + offsets, value, mask)
