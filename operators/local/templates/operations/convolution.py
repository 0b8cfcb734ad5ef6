"""Launches for convolutions."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolve.core.compiled import each_of
from operators.local.inductor.blocks import Blocks
from operators.local.templates.launch import Launch, one_of, powers
from operators.local.templates.tensors import Tensor, pointer_of

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
    def read(cls, given: Mapping[str, object], dims: int) -> "Settings":
        """From literal arguments of a call over so many dimensions in space.

        Raises:
            KeyError: one is missing.
        """

        def each(name: str) -> tuple[int, ...]:
            values = given[name]
            assert isinstance(values, tuple)
            return each_of(values, dims)

        return cls(
            stride=in_space(each("stride"), 1),
            padding=in_space(each("padding"), 0),
            dilation=in_space(each("dilation"), 1),
            transposed=bool(given["transposed"]),
            groups=int(str(given["groups"])),
        )


@dataclass(frozen=True, slots=True)
class Convolution:
    """out = the convolution of x plus bias, over one to three dimensions in space.

    Attributes:
        x: batch x channels x space.
        weight: filters x channels of a group x kernel; transposed: channels x filters of a group.
        bias: one for each filter.
        out: batch x filters x space.
        settings: of the convolution.
        precisions: of `tl.dot`, the default first.
        multiprocessors: of the device.
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    out: Tensor
    settings: Settings
    precisions: Sequence[str]
    multiprocessors: int

    @property
    def sizes(self) -> dict[str, Any]:
        """Constants of kernels: sizes, settings and strides."""
        groups = self.settings.groups
        channels, filters = self.x.shape[1] // groups, self.out.shape[1] // groups
        return {
            "BATCH": self.x.shape[0],
            "CHANNELS": channels,
            "FILTERS": filters,
            "INPUT": in_space(self.x.shape[2:], 1),
            "OUTPUT": in_space(self.out.shape[2:], 1),
            "KERNEL": in_space(self.weight.shape[2:], 1),
            "STRIDE": self.settings.stride,
            "PADDING": self.settings.padding,
            "DILATION": self.settings.dilation,
            "X_STRIDE": _strides(self.x, channels),
            "WEIGHT_STRIDE": _weight_strides(self.weight, channels, filters, self.settings),
            "OUT_STRIDE": _strides(self.out, filters),
        }


def launch(whole: Convolution) -> Launch:
    """The launch of the kernel that reads operands as they are."""
    groups, sizes, out = whole.settings.groups, whole.sizes, whole.out
    pointers = (whole.x.pointer, whole.weight.pointer, pointer_of(whole.bias), out.pointer)
    channels, filters = sizes["CHANNELS"], sizes["FILTERS"]
    if whole.settings.transposed:
        return _transposed(pointers, sizes, whole)
    if groups > 1 and filters < _FEW_FILTERS:
        return _direct(pointers, sizes, groups)
    rows = sizes["BATCH"] * math.prod(out.shape[2:])
    taps = math.prod(whole.weight.shape[2:])
    return Launch(
        kernel="conv_kernel",
        grid=f"({tiles(rows, filters)}, {groups})",
        pointers=pointers,
        constants=sizes | {"FLAT": channels < _FEW_CHANNELS},
        tunables=_tunables(rows, filters, channels, taps, whole.precisions),
    )


def phases_of(sizes: Mapping[str, Any]) -> dict[str, Sizes]:
    """Constants of a transposed convolution: its phases, and the inputs of each."""
    stride, dilation = sizes["STRIDE"], sizes["DILATION"]
    common = tuple(map(math.gcd, stride, dilation))
    spread = tuple(s // c for s, c in zip(stride, common, strict=True))
    step = tuple(d // c for d, c in zip(dilation, common, strict=True))
    return {
        "COMMON": common,
        "INVERSE": tuple(pow(d, -1, s) if s > 1 else 0 for d, s in zip(step, spread, strict=True)),
        "PLACES": _quotients(sizes["OUTPUT"], stride),
        "TAPS": _quotients(sizes["KERNEL"], spread),
        "SPREAD": spread,
        "STEP": tuple(-d for d in step),
    }


def _transposed(
    pointers: tuple[ast.expr, ...], sizes: dict[str, Any], whole: Convolution
) -> Launch:
    phases = phases_of(sizes)
    batch, channels, filters = (sizes[name] for name in ("BATCH", "CHANNELS", "FILTERS"))
    rows = batch * math.prod(phases["PLACES"])
    taps = math.prod(phases["TAPS"])
    count, groups = math.prod(whole.settings.stride), whole.settings.groups
    return Launch(
        kernel="conv_transpose_kernel",
        grid=f"({count} * {tiles(rows, filters)}, {groups})",
        pointers=pointers,
        constants=sizes | phases | {"FLAT": channels < _FEW_CHANNELS},
        tunables=_tunables(rows, filters, channels, taps, whole.precisions),
    )


def _direct(pointers: tuple[ast.expr, ...], sizes: dict[str, Any], groups: int) -> Launch:
    filters = groups * sizes["FILTERS"]
    rows = sizes["BATCH"] * math.prod(sizes["OUTPUT"])
    beside = sizes["X_STRIDE"][1] == 1  # channels lie side by side
    return Launch(
        kernel="conv_direct_kernel",
        grid=f"({tiles(rows, filters)},)",
        pointers=pointers,
        constants={"GROUPS": groups} | sizes,
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


def tiles(rows: int, columns: int) -> str:
    """Their number, an expression over the sides of a tile."""
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
