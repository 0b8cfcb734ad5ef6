"""Launches for convolutions of few filters: outputs side by side are columns of one product."""

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from operators.local.templates.launch import Launch
from operators.local.templates.operations import conv_packed
from operators.local.templates.operations.conv_packed import BLOCK_COST, Layout
from operators.local.templates.operations.convolution import Settings, Sizes, sizes_of, tiles
from operators.local.templates.operations.matmul import NOTHING
from operators.local.templates.operations.matrices import How
from operators.local.templates.operations.packed import deletion, known
from operators.local.templates.tensors import HALF, Tensor

_FACTORS = (1, 2, 4, 8)  # outputs in width for each that there have to be
_MAX_SIDE = 16  # of these: blocks have 16 columns or more
_FULL = 64  # columns for which tensor cores take hardly longer than for fewer
_READING = 32  # columns for which they take as long as a position's inputs take to be read
_LESS = 0.7  # of the work of one output after the other, or that is done


def launches(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    settings: Settings,
    precisions: Sequence[str],
    multiprocessors: int,
) -> tuple[Launch, ...] | None:
    """Alternative to `conv_packed.launches`; None if that is to be preferred."""
    sizes = sizes_of(x, weight, out, settings)
    plain = conv_packed.layout_of(sizes, settings)
    if not conv_packed.pays(plain) or tuple(precisions) == HALF:
        return None
    found = min(_windows(sizes, settings), key=lambda window: window.cost, default=None)
    if not found or not found.layout.has_room or found.cost > _LESS * _cost(plain):
        return None
    operands = conv_packed.operands_of(out)
    images, filters, image_exponents, filter_exponents = operands
    offered = known(precisions, plain.depth, How.WIDE)
    return (
        *conv_packed.image_launches(x, found.layout, images, image_exponents),
        _filter_launch(weight, found, filters, filter_exponents),
        _product_launch(operands, bias, out, found, offered, multiprocessors),
    )


@dataclass(frozen=True, slots=True)
class _Window:
    """The inputs that some outputs side by side meet.

    Attributes:
        phases: outputs in each direction.
        layout: of parts, with windows in the place of taps and columns in that of filters.
        tap: constants that say which tap an output and an input of the window meet at.
        filters: of a group.
    """

    phases: Sizes
    layout: Layout
    tap: Mapping[str, Sizes]
    filters: int

    @property
    def cost(self) -> float:
        return _cost(self.layout)

    @property
    def start(self) -> Sizes:
        """Where the first window begins."""
        origin = self.layout.phases["PADDING"]
        return tuple(map(sum, zip(self.layout.before, origin, strict=True)))


def _cost(layout: Layout) -> float:
    """Of a column, which is an output of a filter: the depth, times what is read or multiplied."""
    columns, room = layout.sizes["FILTERS"], layout.run[3]
    depth = math.prod(layout.runs) * room * (1 + BLOCK_COST / math.gcd(room, 64))
    filled: float = max(-(-columns // 16) * 16, _FULL) + _READING
    return depth * filled / columns


def _windows(sizes: Mapping[str, Any], settings: Settings) -> Iterator[_Window]:
    """Those that there may be; none for a transposed convolution of a larger stride in width."""
    *others, width = settings.stride if settings.transposed else (1, 1, 1)
    for factor in _FACTORS:
        if width * factor <= _MAX_SIDE:
            yield _window(sizes, settings, (*others, width * factor))


def _window(sizes: Mapping[str, Any], settings: Settings, phases: Sizes) -> _Window:
    axes = [_axis(sizes["KERNEL"], settings, phases, axis) for axis in range(3)]
    origin, taps, walk, first, by_phase, by_input = map(tuple, zip(*axes, strict=True))
    places = tuple(-(-size // count) for size, count in zip(sizes["OUTPUT"], phases, strict=True))
    one = (1, 1, 1)
    met = {"PHASES": one, "PADDING": origin, "COMMON": one, "INVERSE": (0, 0, 0)}
    met |= {"PLACES": places, "TAPS": taps, "SPREAD": one, "STEP": one}
    columns = sizes["FILTERS"] * math.prod(phases)
    layout = Layout({**sizes, "FILTERS": columns}, met, walk, settings.groups)
    tap = {"FIRST": first, "BY_PHASE": by_phase, "BY_INPUT": by_input}
    return _Window(phases, layout, tap, sizes["FILTERS"])


def _axis(kernel: Sizes, settings: Settings, phases: Sizes, axis: int) -> tuple[int, ...]:
    """Of a direction: first input and length of a window, inputs from one to the next, and taps."""
    stride, padding, dilation = (
        given[axis] for given in (settings.stride, settings.padding, settings.dilation)
    )
    pairs = product(range(phases[axis]), range(kernel[axis]))
    if settings.transposed:
        reached = [phase + padding - dilation * tap for phase, tap in pairs]
        met = [place // stride for place in reached if place % stride == 0]
        origin, walk = min(met), phases[axis] // stride
        taps = padding - stride * origin, 1, -stride
    else:
        met = [phase * stride - padding + dilation * tap for phase, tap in pairs]
        origin, walk = min(met), phases[axis] * stride
        taps = origin + padding, -stride, 1
    return origin, max(met) - origin + 1, walk, *taps


def _filter_launch(weight: Tensor, window: _Window, parts: ast.expr, exponents: ast.expr) -> Launch:
    """Kernels that split the filters of columns into parts."""
    layout = window.layout
    constants = {**layout.only("CHANNELS"), "FILTERS": window.filters}
    constants |= {**layout.only("KERNEL", "DILATION"), "PHASES": window.phases, **window.tap}
    constants |= {"RUNS": layout.runs, "RUN": layout.run}
    return conv_packed.filter_launch(
        "conv_window_kernel", weight, layout, (), constants, parts, exponents
    )


def _product_launch(
    operands: Sequence[ast.expr],
    bias: Tensor | None,
    out: Tensor,
    window: _Window,
    precisions: Sequence[str],
    multiprocessors: int,
) -> Launch:
    layout, side = window.layout, window.phases[2]
    columns = layout.sizes["FILTERS"]
    rows = layout.sizes["BATCH"] * math.prod(layout.phases["PLACES"])
    return Launch(
        kernel="conv_wide_kernel",
        grid=f"({tiles(rows, columns)}, {layout.groups})",
        pointers=(*operands, bias.pointer if bias else NOTHING, out.pointer),
        constants={**layout.only("BATCH"), "FILTERS": window.filters}
        | {"OUT_SIZE": layout.sizes["OUTPUT"], "PHASES": window.phases}
        | {"SIDE": side if side & (side - 1) == 0 else 1, **layout.only("PLACES")}
        | {"WALK": layout.walk, "START": window.start, **layout.only("STEP")}
        | {"RUNS": layout.runs, "RUN": layout.run, "IMAGE_STRIDE": layout.image_stride}
        | {"FILTER_STRIDE": layout.filter_stride, **layout.only("OUT_STRIDE")},
        tunables=conv_packed.block_tunables(rows, columns, layout, precisions, multiprocessors),
        after=(deletion(*operands),),
    )
