"""Launches for averages and maxima over windows."""

import math
from collections.abc import Sequence

from operators.local.templates.launch import Launch, one_of, powers
from operators.local.templates.operations.convolution import in_space
from operators.local.templates.tensors import Tensor


def launch(name: str, x: Tensor, out: Tensor, given: Sequence[object]) -> Launch:
    """For a call of `avg_pool{1,2,3}d` or `max_pool{2,3}d_with_indices`, of which the maxima.

    Args:
        name: of the function.
        x: batch x channels x space; without a batch too.
        out: as `x`.
        given: literal arguments after the input, as many as there are.
    """
    maximum = name.startswith("max")
    space = int(name[8])
    kernel, *others = given
    rest = dict(enumerate(others))
    window = _sizes(kernel, space)
    x_stride, out_stride = _batched(x, space), _batched(out, space)
    size = math.prod(out.shape)
    return Launch(
        kernel="pool_kernel",
        grid=f"(triton.cdiv({size}, BLOCK),)",
        pointers=(x.pointer, out.pointer),
        constants={
            "SIZE": size,
            "CHANNELS": out.shape[-space - 1],
            "INPUT": in_space(x.shape[-space:], 1),
            "OUTPUT": in_space(out.shape[-space:], 1),
            "KERNEL": in_space(window, 1),
            "STRIDE": in_space(_sizes(rest.get(0) or window, space), 1),
            "PADDING": in_space(_sizes(rest.get(1, 0), space), 0),
            "DILATION": in_space(_sizes(rest.get(2, 1) if maximum else 1, space), 1),
            "X_STRIDE": x_stride,
            "OUT_STRIDE": out_stride,
            "MAXIMUM": maximum,
            "PADDING_COUNTS": bool(rest.get(3, True)),
            "DIVISOR": 0 if maximum else rest.get(4) or 0,
        },
        tunables={"BLOCK": powers(64, 1024, size, 256), "num_warps": one_of(1, 2, 4, 8, first=4)},
    )


def _sizes(value: object, space: int) -> tuple[int, ...]:
    if isinstance(value, list | tuple):
        return tuple(value) if len(value) == space else tuple(value) * space
    return (int(str(value)),) * space


def _batched(tensor: Tensor, space: int) -> tuple[int, ...]:
    """Batch, channel, depth, height, width."""
    stride = tensor.stride if len(tensor.stride) == space + 2 else (0, *tensor.stride)
    return (*stride[:2], *in_space(stride[2:], 0))
