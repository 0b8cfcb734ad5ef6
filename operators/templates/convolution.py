"""Launches for convolutions."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.inductor.blocks import Blocks
from operators.templates.launch import Launch, one_of, powers
from operators.templates.matmul import NOTHING
from operators.templates.tensors import Tensor

_FEW_FILTERS = 8  # of a group; fewer than half a tensor core's tile: products one by one
_FEW_CHANNELS = 16

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a convolution, in torch's words, for depth, height and width."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    transposed: bool
    groups: int

    @classmethod
    def read(cls, given: Mapping[str, object]) -> "Settings":
        """From literal arguments of a call. Raises KeyError where one is missing."""
        return cls(
            stride=in_space(given["stride"], 1),
            padding=in_space(given["padding"], 0),
            dilation=in_space(given["dilation"], 1),
            transposed=bool(given["transposed"]),
            groups=int(str(given["groups"])),
        )


def launch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    settings: Settings,
    precisions: Sequence[str],
) -> Launch:
    """For out = the convolution of x plus bias, over one to three dimensions in space.

    Args:
        x: batch x channels x space.
        weight: filters x channels of a group x kernel; transposed: channels x filters of a group.
        bias: one for each filter.
        out: batch x filters x space.
        settings: of the convolution.
        precisions: what `tl.dot` may make of its arguments, the first to begin with.
    """
    groups = settings.groups
    channels, filters = x.shape[1] // groups, out.shape[1] // groups
    pointers = (x.pointer, weight.pointer, bias.pointer if bias else NOTHING, out.pointer)
    space = {
        "BATCH": x.shape[0],
        "CHANNELS": channels,
        "FILTERS": filters,
        "INPUT": in_space(x.shape[2:], 1),
        "OUTPUT": in_space(out.shape[2:], 1),
        "KERNEL": in_space(weight.shape[2:], 1),
        "STRIDE": settings.stride,
        "PADDING": settings.padding,
        "DILATION": settings.dilation,
    }
    strides = {
        "X_STRIDE": _strides(x, channels),
        "WEIGHT_STRIDE": _weight_strides(weight, channels, filters, settings),
        "OUT_STRIDE": _strides(out, filters),
    }
    if settings.transposed:
        return _transposed(pointers, space, strides, settings, precisions)
    if groups > 1 and filters < _FEW_FILTERS:
        return _direct(pointers, space, strides, groups)
    rows = x.shape[0] * math.prod(out.shape[2:])
    return Launch(
        kernel="conv_kernel",
        grid=f"({_tiles(rows, filters)}, {groups})",
        pointers=pointers,
        constants=space | strides | {"FLAT": channels < _FEW_CHANNELS},
        tunables=_tunables(rows, filters, channels, math.prod(weight.shape[2:]), precisions),
    )


def _transposed(
    pointers: tuple[ast.expr, ...],
    space: dict[str, object],
    strides: dict[str, Sizes],
    settings: Settings,
    precisions: Sequence[str],
) -> Launch:
    stride, dilation = settings.stride, settings.dilation
    common = tuple(map(math.gcd, stride, dilation))
    spread = tuple(s // c for s, c in zip(stride, common, strict=True))
    step = tuple(d // c for d, c in zip(dilation, common, strict=True))
    places = _quotients(space["OUTPUT"], stride)
    taps = _quotients(space["KERNEL"], spread)
    phases = {
        "COMMON": common,
        "INVERSE": tuple(pow(d, -1, s) if s > 1 else 0 for d, s in zip(step, spread, strict=True)),
        "PLACES": places,
        "TAPS": taps,
        "SPREAD": spread,
        "STEP": tuple(-d for d in step),
    }
    batch, channels, filters = (int(str(space[n])) for n in ("BATCH", "CHANNELS", "FILTERS"))
    rows = batch * math.prod(places)
    return Launch(
        kernel="conv_transpose_kernel",
        grid=f"({_tiles(rows, filters)}, {settings.groups}, {math.prod(stride)})",
        pointers=pointers,
        constants=space | phases | strides | {"FLAT": channels < _FEW_CHANNELS},
        tunables=_tunables(rows, filters, channels, math.prod(taps), precisions),
    )


def _direct(
    pointers: tuple[ast.expr, ...],
    space: dict[str, object],
    strides: dict[str, Sizes],
    groups: int,
) -> Launch:
    batch, filters = int(str(space["BATCH"])), groups * int(str(space["FILTERS"]))
    rows = batch * math.prod(in_space(space["OUTPUT"], 1))
    beside = strides["X_STRIDE"][1] == 1  # channels lie side by side
    return Launch(
        kernel="conv_direct_kernel",
        grid=f"({_tiles(rows, filters)},)",
        pointers=pointers,
        constants={"GROUPS": groups} | space | strides,
        tunables={
            "BLOCK_M": powers(4, 1024, rows, 16 if beside else 512),
            "BLOCK_N": powers(1, 128, filters, 64 if beside else 1),
            "num_warps": one_of(1, 2, 4, 8, first=4),
        },
    )


def _tunables(
    rows: int, filters: int, channels: int, taps: int, precisions: Sequence[str]
) -> dict[str, Blocks]:
    depth = channels * taps if channels < _FEW_CHANNELS else channels
    return {
        "BLOCK_M": powers(32, 256, rows, 128),
        "BLOCK_N": powers(16, 256, filters, 64),
        "BLOCK_K": powers(16, 64, depth, 32),
        "GROUP_M": one_of(1, 8, first=8),
        "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
        "num_warps": one_of(4, 8, first=4),
        "num_stages": one_of(2, 3, 4, first=3),
    }


def _tiles(rows: int, columns: int) -> str:
    return f"triton.cdiv({rows}, BLOCK_M) * triton.cdiv({columns}, BLOCK_N)"


def in_space(sizes: object, missing: int) -> Sizes:
    """Depth, height and width, of as many of the last of them as are given."""
    assert isinstance(sizes, tuple)
    return (missing,) * (3 - len(sizes)) + sizes


def _quotients(sizes: object, divisors: Sizes) -> Sizes:
    return tuple(-(-a // b) for a, b in zip(in_space(sizes, 1), divisors, strict=True))


def _strides(tensor: Tensor, channels: int) -> Sizes:
    """Batch, group, channel, depth, height, width."""
    batch, channel, *space = tensor.stride
    return (batch, channels * channel, channel, *in_space(tuple(space), 0))


def _weight_strides(weight: Tensor, channels: int, filters: int, settings: Settings) -> Sizes:
    """Group, filter, channel, depth, height, width."""
    first, second, *space = weight.stride
    kernel = in_space(tuple(space), 0)
    if settings.transposed:
        return (channels * first, second, first, *kernel)
    return (filters * first, first, second, *kernel)
