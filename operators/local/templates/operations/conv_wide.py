"""Launches for convolutions of few filters: outputs side by side are columns of one product."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from operators.local.templates.launch import Launch
from operators.local.templates.operations import conv_packed
from operators.local.templates.operations.conv_packed import BLOCK_COST, Kernels, Layout
from operators.local.templates.operations.convolution import Convolution, Settings, Sizes
from operators.local.templates.operations.matrices import How
from operators.local.templates.operations.packed import known

_FACTORS = (1, 2, 4, 8)  # outputs in width for each that there have to be
_MAX_SIDE = 16  # of these: blocks have 16 columns or more
_FULL = 64  # columns for which tensor cores take hardly longer than for fewer
_READING = 32  # columns for which they take as long as a position's inputs take to be read
_LESS = 0.7  # of the work of one output after the other, or that is done


def launches(whole: Convolution) -> tuple[Launch, ...] | None:
    """Alternative to `conv_packed.launches`; None if that is to be preferred."""
    plain = conv_packed.layout_of(whole)
    if not conv_packed.pays(whole, plain):
        return None
    found = min(_windows(whole.sizes, whole.settings), key=lambda window: window.cost, default=None)
    if not found or not found.layout.has_room or found.cost > _LESS * _cost(plain):
        return None
    offered = known(whole.precisions, plain.depth, How.WIDE)
    return found.kernels.launches(whole, found.layout, offered)


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

    @property
    def kernels(self) -> Kernels:
        """The kernels that cut the filters of columns, and multiply."""
        layout, side = self.layout, self.phases[2]
        runs = {"RUNS": layout.runs, "RUN": layout.run}
        return Kernels(
            cut="conv_window_kernel",
            cut_constants={**layout.only("CHANNELS"), "FILTERS": self.filters}
            | {**layout.only("KERNEL", "DILATION"), "PHASES": self.phases, **self.tap, **runs},
            multiply="conv_wide_kernel",
            constants={**layout.only("BATCH"), "FILTERS": self.filters}
            | {"OUT_SIZE": layout.sizes["OUTPUT"], "PHASES": self.phases}
            | {"SIDE": side if side & (side - 1) == 0 else 1, **layout.only("PLACES")}
            | {"WALK": layout.walk, "START": self.start, **layout.only("STEP"), **runs},
        )


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
