"""Averages and maxima over windows of one to three dimensions.

Sizes in space are (depth, height, width); strides are in elements, in the order (batch, channel,
depth, height, width).
"""

import triton
import triton.language as tl

from operators.local.templates.kernels.convolution import conv_inside, conv_place


@triton.jit
def pool_kernel(
    x_ptr,
    out_ptr,
    SIZE: tl.constexpr,
    CHANNELS: tl.constexpr,
    INPUT: tl.constexpr,
    OUTPUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    DILATION: tl.constexpr,
    X_STRIDE: tl.constexpr,
    OUT_STRIDE: tl.constexpr,
    MAXIMUM: tl.constexpr,
    PADDING_COUNTS: tl.constexpr,
    DIVISOR: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """BLOCK of SIZE outputs. An average is over DIVISOR elements, if that is not 0."""
    WINDOW: tl.constexpr = KERNEL[0] * KERNEL[1] * KERNEL[2]
    start = tl.program_id(0) if SIZE + BLOCK < 2**31 else tl.program_id(0).to(tl.int64)
    index = start * BLOCK + tl.arange(0, BLOCK)
    if OUT_STRIDE[1] == 1:  # channels lie side by side
        channel, place = index % CHANNELS, index // CHANNELS
        batch, depth, height, width = conv_place(place, OUTPUT)
    else:
        place, depth, height, width = conv_place(index, OUTPUT)
        channel, batch = place % CHANNELS, place // CHANNELS
    batch = batch.to(tl.int64)
    x_ptrs = x_ptr + batch * X_STRIDE[0] + channel * X_STRIDE[1]
    first_d = depth * STRIDE[0] - PADDING[0]
    first_h = height * STRIDE[1] - PADDING[1]
    first_w = width * STRIDE[2] - PADDING[2]
    value = tl.full([BLOCK], float("-inf") if MAXIMUM else 0.0, tl.float32)
    count = tl.zeros([BLOCK], tl.float32)
    for tap in tl.range(0, WINDOW):
        _, tap_d, tap_h, tap_w = conv_place(tap, KERNEL)
        d, h = first_d + tap_d * DILATION[0], first_h + tap_h * DILATION[1]
        w = first_w + tap_w * DILATION[2]
        inside = conv_inside(d, h, w, INPUT)
        offsets = d * X_STRIDE[2] + h * X_STRIDE[3] + w * X_STRIDE[4]
        x = tl.load(
            x_ptrs + offsets,
            mask=inside & (index < SIZE),
            other=float("-inf") if MAXIMUM else 0.0,
        ).to(tl.float32)
        if MAXIMUM:
            value = tl.maximum(value, x, propagate_nan=tl.PropagateNan.ALL)
        else:
            value += x
            counted = inside
            if PADDING_COUNTS:  # up to the padding's end, not beyond it
                counted = (d < INPUT[0] + PADDING[0]) & (h < INPUT[1] + PADDING[1])
                counted = counted & (w < INPUT[2] + PADDING[2])
            count += counted.to(tl.float32)
    if not MAXIMUM:
        value = value / (DIVISOR if DIVISOR else count)
    offsets = batch * OUT_STRIDE[0] + channel * OUT_STRIDE[1]
    offsets = offsets + depth * OUT_STRIDE[2] + height * OUT_STRIDE[3] + width * OUT_STRIDE[4]
    mask = index < SIZE
    tl.store(out_ptr + offsets, value, mask)
