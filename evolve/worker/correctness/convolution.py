"""Convolutions in fp64 as sums of matrix products, one for each place of the kernel.

cuDNN has no fast ones for fp64: of a transposed convolution in three dimensions an H200 took four
seconds, and expecting such outcomes was nearly all of the work for a candidate. Its matrix products
in fp64 run on tensor cores.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from evolve.core.compiled import each_of
from evolve.worker.base.dispatch import DispatchMode

CONVOLUTION = torch.ops.aten.convolution.default
_MAX_PLACES = 1024  # of a kernel, each a few launches
_AT_ONCE = 1 << 27  # elements of a batch: beside it there are copies of the same size


class ByProducts(DispatchMode):
    """In it, convolutions of fp64 tensors on such a device are made by `convolution`."""

    def __init__(self, place: str = "cuda") -> None:
        super().__init__()
        self._place = place

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation is CONVOLUTION:
            x, weight = arguments[:2]
            is_meant = x.device.type == self._place and x.dtype is torch.float64
            if is_meant and x.numel() and math.prod(weight.shape[2:]) <= _MAX_PLACES:
                return in_parts(convolution, x, *arguments[1:])
        return operation(*arguments, **options)


def in_parts(
    operation: Callable[..., Tensor], x: Tensor, *arguments: Any, most: int = _AT_ONCE
) -> Tensor:
    """`operation(x, *arguments)` of a batch, of which no more than `most` elements at once."""
    rows = max(1, most * x.shape[0] // max(1, x.numel()))
    if rows >= x.shape[0]:
        return operation(x, *arguments)
    first = operation(x[:rows], *arguments)
    made = first.new_empty(x.shape[0], *first.shape[1:])
    made[:rows] = first
    del first
    for start in range(rows, x.shape[0], rows):
        made[start : start + rows] = operation(x[start : start + rows], *arguments)
    return made


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    """The same as `aten::convolution`, whose arguments these are, of a batch.

    Shapes: `x` (batch, channels, *sizes), `weight` (outputs, channels / groups, *kernel), or where
    `transposed` (channels, outputs / groups, *kernel).
    """
    dims = x.dim() - 2
    stride, padding, dilation, output_padding = (
        each_of(values, dims) for values in (stride, padding, dilation, output_padding)
    )
    kernel = weight.shape[2:]
    if transposed:
        made = _spread(x, weight, stride, dilation, output_padding, groups)
        for dim, width in enumerate(padding):
            made = made.narrow(2 + dim, width, made.shape[2 + dim] - 2 * width)
    else:
        x = pad(x, [width for widths in zip(padding[::-1], padding[::-1], strict=True)
                    for width in widths])  # fmt: skip
        reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
        sizes = [
            (size - far - 1) // step + 1
            for size, far, step in zip(x.shape[2:], reach, stride, strict=True)
        ]
        made = _gathered(x, weight, sizes, stride, dilation, groups)
    made = made.contiguous()
    return made if bias is None else made.add_(bias.view(-1, *[1] * dims))


def _gathered(
    x: Tensor,
    weight: Tensor,
    sizes: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    batch, outputs = x.shape[0], weight.shape[0]
    made = x.new_zeros(batch, outputs, *sizes)
    for place, starts in _places(weight.shape[2:], dilation):
        part = _strided(x, starts, sizes, stride)
        factors = _at(weight, place).view(groups, outputs // groups, -1)
        _add_products(made, factors, part, groups)
    return made


def _spread(
    x: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> Tensor:
    batch, channels, *sizes = x.shape
    outputs = groups * weight.shape[1]
    full = [
        (size - 1) * step + wide * (length - 1) + 1 + more
        for size, step, wide, length, more in zip(
            sizes, stride, dilation, weight.shape[2:], output_padding, strict=True
        )
    ]
    made = x.new_zeros(batch, outputs, *full)
    for place, starts in _places(weight.shape[2:], dilation):
        factors = _at(weight, place).view(groups, channels // groups, -1).transpose(1, 2)
        part = x.new_zeros(batch, outputs, *sizes)
        _add_products(part, factors, x, groups)
        _strided(made, starts, sizes, stride).add_(part)
    return made


def _at(weight: Tensor, place: Sequence[int]) -> Tensor:
    """A copy of the factors at one place of the kernel."""
    for at in reversed(place):
        weight = weight.select(-1, at)
    return weight.contiguous()


def _places(
    kernel: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], list[int]]]:
    """The places of a kernel, and where in a (padded) input they begin."""
    for place in itertools.product(*map(range, kernel)):
        yield place, [at * wide for at, wide in zip(place, dilation, strict=True)]


def _strided(
    tensor: Tensor, starts: Sequence[int], sizes: Sequence[int], stride: Sequence[int]
) -> Tensor:
    """A view: along each dimension so many elements from a start on, some apart."""
    for dim, (start, size, step) in enumerate(zip(starts, sizes, stride, strict=True)):
        tensor = tensor.narrow(2 + dim, start, (size - 1) * step + 1)
        tensor = tensor[(slice(None),) * (2 + dim) + (slice(None, None, step),)]
    return tensor


def _add_products(into: Tensor, factors: Tensor, x: Tensor, groups: int) -> None:
    """Add, for each group, `factors` (groups, outputs, channels) times the channels of `x`."""
    batch = x.shape[0]
    _, outputs, channels = factors.shape
    ours = into.view(batch, groups, outputs, -1)
    theirs = x.reshape(batch, groups, channels, -1)
    if channels == 1:  # of products that thin there would be one for each channel
        ours.addcmul_(factors, theirs)
        return
    of_all = factors.expand(batch, *factors.shape).flatten(0, 1)
    ours.flatten(0, 1).baddbmm_(of_all, theirs.flatten(0, 1))
