"""Convolutions of float32 on tensor cores, of images and filters that are laid out beforehand.

Images are cut into parts as operands of `matmul_packed_kernel` are, with channels side by side and
with their padding around them; filters, with taps in the order in which they are met. A run is the
contiguous part for a position then: channels of a row of taps, or of one tap. So the product of
positions by (runs) with (runs) by filters reads its operands as they lie.

A power of two is common to an image (the channels of a group), and to a filter as a phase meets it.

Plain and transposed convolutions are one. Outputs of a phase meet the same taps; those of a plain
one are one phase, whose PADDING is negative. From one place of a phase to the next it is WALK
inputs, from one tap to the next STEP. Sizes in space are (depth, height, width), strides of images'
parts (part, batch, group, depth, height, width), of filters' (part, group, phase, filter).
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.convolution import (
    conv_inside,
    conv_offset,
    conv_phases,
    conv_place,
)
from operators.local.templates.kernels.matmul import grouped, with_bias
from operators.local.templates.kernels.packed import (
    add_product,
    exponent_for,
    finite,
    power_of_two,
    store_parts,
    unscaled,
)


@triton.jit
def conv_largest_kernel(
    x_ptr,
    largest_ptr,
    GROUPS: tl.constexpr,
    X_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    SIZES: tl.constexpr,
    STRIDES: tl.constexpr,
    CHUNKS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest of CHUNK elements of an image, of SIZE in all. X_STRIDE is as in `conv_kernel`.

    SIZES are those of an image's inner axes and STRIDES those of all four, in which channels count
    like places; if elements lie side by side it is one axis.
    """
    image, chunk = (tl.program_id(0) // CHUNKS).to(tl.int64), tl.program_id(0) % CHUNKS
    x_ptr += image // GROUPS * X_STRIDE[0] + image % GROUPS * X_STRIDE[1]
    largest = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, CHUNK, BLOCK):
        index = chunk * CHUNK + start + tl.arange(0, BLOCK)
        first, second, third, last = conv_place(index, SIZES)
        offsets = first * STRIDES[0] + second * STRIDES[1] + third * STRIDES[2] + last * STRIDES[3]
        x = tl.load(x_ptr + offsets, mask=index < SIZE, other=0.0)
        largest = tl.maximum(largest, finite(x))
    tl.store(largest_ptr + image * CHUNKS + chunk, tl.max(largest, 0))


@triton.jit
def conv_pack_kernel(
    x_ptr,
    largest_ptr,
    parts_ptr,
    exponents_ptr,
    GROUPS: tl.constexpr,
    CHANNELS: tl.constexpr,
    INPUT: tl.constexpr,
    ROOM: tl.constexpr,
    BEFORE: tl.constexpr,
    X_STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    CHUNKS: tl.constexpr,
    LINES: tl.constexpr,
    WIDTH: tl.constexpr,
    DEPTH: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Cuts LINES positions of the ROOM of an image into parts; INPUT lies BEFORE from its start.

    Of channels a program cuts DEPTH, WIDTH at a time. The grid is (positions of images, channels).
    """
    POSITIONS: tl.constexpr = ROOM[0] * ROOM[1] * ROOM[2]
    BLOCKS: tl.constexpr = (POSITIONS + LINES - 1) // LINES
    image, block = (tl.program_id(0) // BLOCKS).to(tl.int64), tl.program_id(0) % BLOCKS
    chunks = tl.arange(0, triton.next_power_of_2(CHUNKS))
    largest = tl.load(largest_ptr + image * CHUNKS + chunks, chunks < CHUNKS, other=0.0)
    exponent = exponent_for(tl.max(largest, 0))
    place = block * LINES + tl.arange(0, LINES)
    _, depth, height, width = conv_place(place, ROOM)
    depth, height, width = depth - BEFORE[0], height - BEFORE[1], width - BEFORE[2]
    inside = conv_inside(depth, height, width, INPUT) & (place < POSITIONS)
    x_ptr += image // GROUPS * X_STRIDE[0] + image % GROUPS * X_STRIDE[1]
    offsets = conv_offset(depth, height, width, X_STRIDE)[None, :]
    if X_STRIDE[5] == 1 and ROOM[2] > 1:
        offsets = tl.max_contiguous(offsets, [1, LINES])
    x_ptrs = x_ptr + offsets
    parts_ptr += image // GROUPS * PART_STRIDE[1] + image % GROUPS * PART_STRIDE[2]
    part_ptrs = parts_ptr + place[:, None] * PART_STRIDE[5]
    for start in tl.range(0, DEPTH, WIDTH):
        channel = tl.program_id(1) * DEPTH + start + tl.arange(0, WIDTH)
        mask = inside[None, :] & (channel < CHANNELS)[:, None]
        x = tl.load(x_ptrs + (channel * X_STRIDE[2])[:, None], mask=mask, other=0.0)
        ptrs = part_ptrs + channel[None, :]
        mask = (place < POSITIONS)[:, None] & (channel < PART_STRIDE[5])[None, :]
        x = tl.trans(x) * power_of_two(exponent)
        store_parts(x, ptrs, mask, PART_STRIDE[0], INPUT_PRECISION)
    if (block == 0) & (tl.program_id(1) == 0):
        tl.store(exponents_ptr + image, exponent)


@triton.jit
def conv_filters_kernel(
    weight_ptr,
    parts_ptr,
    exponents_ptr,
    CHANNELS: tl.constexpr,
    KERNEL: tl.constexpr,
    PHASES: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
    SPREAD: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    PART_STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Cuts a phase's part of a filter, BLOCK elements at most, into parts.

    The grid is (filters, groups, phases); if there is no tap there are zeros. RUN is (taps,
    elements of a tap, whether the last tap comes first, elements with their room).
    """
    SIZE: tl.constexpr = RUNS[0] * RUNS[1] * RUNS[2] * RUN[3]
    column, group, phase = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    _, _, _, first_depth, first_height, first_width, _, _, _ = conv_phases(
        phase, KERNEL, PHASES, PADDING, DILATION, COMMON, INVERSE
    )
    at = tl.arange(0, BLOCK)
    _, depth, height, width = conv_place(at // RUN[3], RUNS)
    along, channel = at % RUN[3] // RUN[1], at % RUN[3] % RUN[1]
    width = width + (RUN[0] - 1 - along if RUN[2] else along)
    depth = first_depth + depth * SPREAD[0]
    height = first_height + height * SPREAD[1]
    width = first_width + width * SPREAD[2]
    is_tap = (at < SIZE) & (along < RUN[0]) & (channel < CHANNELS)
    is_tap = is_tap & (depth < KERNEL[0]) & (height < KERNEL[1]) & (width < KERNEL[2])
    offsets = conv_offset(depth, height, width, WEIGHT_STRIDE) + channel * WEIGHT_STRIDE[2]
    weight_ptr += group * WEIGHT_STRIDE[0] + column * WEIGHT_STRIDE[1]
    x = tl.load(weight_ptr + offsets, mask=is_tap, other=0.0)
    exponent = exponent_for(tl.max(finite(x), 0))
    line = (group * tl.num_programs(2) + phase) * tl.num_programs(0) + column
    tl.store(exponents_ptr + line, exponent)
    ptrs = parts_ptr + group * PART_STRIDE[1] + phase * PART_STRIDE[2] + column * PART_STRIDE[3]
    x *= power_of_two(exponent)
    store_parts(x, ptrs + at, at < SIZE, PART_STRIDE[0], INPUT_PRECISION)


@triton.jit
def sum_runs(
    image_ptrs,
    filter_ptrs,
    STEP: tl.constexpr,
    RUNS: tl.constexpr,
    RUN: tl.constexpr,
    IMAGE_STRIDE: tl.constexpr,
    FILTER_STRIDE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    INPUT_PRECISION: tl.constexpr,
):
    """Products of BLOCK_M positions with BLOCK_N filters, from the first run of each on."""
    SLICES: tl.constexpr = RUN[3] // BLOCK_K
    tl.static_assert(RUN[3] % BLOCK_K == 0)
    inside_run = tl.arange(0, BLOCK_K)
    value = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for at in tl.range(0, RUNS[0] * RUNS[1] * RUNS[2] * SLICES):
        _, tap_depth, tap_height, tap_width = conv_place(at // SLICES, RUNS)
        start = at % SLICES * BLOCK_K
        further = tap_depth * (STEP[0] * IMAGE_STRIDE[3]) + tap_height * (STEP[1] * IMAGE_STRIDE[4])
        further += tap_width * (STEP[2] * IMAGE_STRIDE[5]) + start
        inside = (start + inside_run < RUN[0] * RUN[1])[None, :]
        if RUN[0] * RUN[1] == RUN[3]:
            inside = tl.full([1, BLOCK_K], True, tl.int1)
        value = add_product(
            value,
            image_ptrs + further,
            filter_ptrs + at * BLOCK_K,
            inside,
            IMAGE_STRIDE[0],
            FILTER_STRIDE[0],
            INPUT_PRECISION,
        )
    return value


@triton.jit
def conv_packed_kernel(
    images_ptr,
    filters_ptr,
    image_exponents_ptr,
    filter_exponents_ptr,
    bias_ptr,
    out_ptr,
    BATCH: tl.constexpr,
    FILTERS: tl.constexpr,
    OUTPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    PHASES: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    COMMON: tl.constexpr,
    INVERSE: tl.constexpr,
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
    """A tile of a phase of the output: BLOCK_M positions by BLOCK_N filters of a group.

    The grid is (tiles and phases, groups): the phases of a tile read the same inputs, and store
    adjacent outputs. OUT_STRIDE is as in `conv_kernel`.
    """
    COUNT: tl.constexpr = PHASES[0] * PHASES[1] * PHASES[2]
    POSITIONS: tl.constexpr = BATCH * PLACES[0] * PLACES[1] * PLACES[2]
    ROWS: tl.constexpr = (POSITIONS + BLOCK_M - 1) // BLOCK_M
    COLUMNS: tl.constexpr = (FILTERS + BLOCK_N - 1) // BLOCK_N
    tile_row, tile_column = grouped(tl.program_id(0) // COUNT, ROWS, COLUMNS, GROUP_M)
    group, phase = tl.program_id(1).to(tl.int64), tl.program_id(0) % COUNT
    phase_depth, phase_height, phase_width, _, _, _, place_depth, place_height, place_width = (
        conv_phases(phase, KERNEL, PHASES, PADDING, DILATION, COMMON, INVERSE)
    )
    rows = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)
    batch, depth, height, width = conv_place(rows, PLACES)
    batch = tl.minimum(batch, BATCH - 1).to(tl.int64)  # places beyond the last are read, not stored
    first = conv_offset(
        depth * WALK[0] + place_depth + START[0],
        height * WALK[1] + place_height + START[1],
        width * WALK[2] + place_width + START[2],
        IMAGE_STRIDE,
    )
    depths = tl.arange(0, BLOCK_K)
    image_ptrs = images_ptr + batch * IMAGE_STRIDE[1] + group * IMAGE_STRIDE[2] + first
    image_ptrs = image_ptrs[:, None] + depths[None, :]
    filter_ptrs = filters_ptr + group * FILTER_STRIDE[1] + phase * FILTER_STRIDE[2]
    column_offsets = tl.minimum(columns, FILTERS - 1) * FILTER_STRIDE[3]  # as with places
    filter_ptrs = filter_ptrs + column_offsets[None, :] + depths[:, None]
    value = sum_runs(
        image_ptrs,
        filter_ptrs,
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
    depth = depth * PHASES[0] + phase_depth
    height = height * PHASES[1] + phase_height
    width = width * PHASES[2] + phase_width
    mask = (rows < POSITIONS) & (depth < OUTPUT[0]) & (height < OUTPUT[1]) & (width < OUTPUT[2])
    mask = mask[None, :] & (columns < FILTERS)[:, None]
    image_exponent = tl.load(image_exponents_ptr + batch * tl.num_programs(1) + group)
    line = (group * COUNT + phase) * FILTERS + columns
    filter_exponent = tl.load(filter_exponents_ptr + line, columns < FILTERS, other=0)
    exponent = image_exponent[None, :] + filter_exponent[:, None]
    value = unscaled(tl.trans(value), exponent)  # positions come last
    channels = (group * FILTERS + columns)[:, None]
    value = with_bias(value, bias_ptr, channels, (columns < FILTERS)[:, None])
    offsets = conv_offset(depth, height, width, OUT_STRIDE)
    offsets = offsets + batch * OUT_STRIDE[0] + group * OUT_STRIDE[1]
    offsets = offsets[None, :] + (columns * OUT_STRIDE[2])[:, None]
    if OUT_STRIDE[5] == 1 and PLACES[2] > 1:  # as in `conv_kernel`
        offsets = tl.max_contiguous(offsets, [1, BLOCK_M])
    tl.store(out_ptr + offsets, value, mask)
