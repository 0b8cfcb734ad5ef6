"""Launches for convolutions of float32 whose images and filters are cut into parts beforehand."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.inductor.blocks import Blocks
from operators.templates.convolution import Settings, Sizes, phases_of, sizes_of, tiles
from operators.templates.launch import Launch, one_of, powers
from operators.templates.matmul import NOTHING
from operators.templates.packed import known, room_for_parts
from operators.templates.tensors import HALF, Tensor

_LEAST_REUSE = 256  # products for each element of an image, as for `packed.pays`
_LEAST_FILTERS = 16
_FILTERS = 256  # the largest block: parts have room for whole ones
_CHUNK, _MOST_CHUNKS = 1024, 256  # of an image, positions whose largest element one program finds
_BLOCK_COST = 16  # a block of the depth takes as long as so many elements more than it has


def launches(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    settings: Settings,
    precisions: Sequence[str],
) -> tuple[Launch, ...] | None:
    """For what `convolution.launch` does; None where there is too little to do for this to pay."""
    sizes = sizes_of(x, weight, out, settings)
    walk = (1, 1, 1) if settings.transposed else settings.stride
    reuse = math.prod(sizes["KERNEL"]) * sizes["FILTERS"] // math.prod(walk)
    if sizes["FILTERS"] < _LEAST_FILTERS or reuse < _LEAST_REUSE or tuple(precisions) == HALF:
        return None
    layout = _Layout(sizes, _phases(sizes, settings), walk, settings.groups)
    if math.prod(layout.room) * layout.tap >= 2**31:
        return None
    return _launches(x, weight, bias, out, layout, known(precisions))


def _phases(sizes: Mapping[str, Any], settings: Settings) -> dict[str, Sizes]:
    """A plain convolution is a transposed one of a single phase, with negative padding."""
    if settings.transposed:
        return {"PHASES": settings.stride, "PADDING": settings.padding, **phases_of(sizes)}
    return {
        "PHASES": (1, 1, 1),
        "PADDING": tuple(-padding for padding in settings.padding),
        "COMMON": (1, 1, 1),
        "INVERSE": (0, 0, 0),
        "PLACES": sizes["OUTPUT"],
        "TAPS": sizes["KERNEL"],
        "SPREAD": (1, 1, 1),
        "STEP": settings.dilation,
    }


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where parts lie.

    Attributes:
        sizes: of the convolution.
        phases: of its outputs, and what they meet.
        walk: inputs from one place of a phase to the next.
        groups: of channels.
    """

    sizes: Mapping[str, Any]
    phases: Mapping[str, Sizes]
    walk: Sizes
    groups: int

    @property
    def tap(self) -> int:
        """Elements of one: its channels, so many that each begins at a multiple of 8 bytes."""
        channels: int = self.sizes["CHANNELS"]
        return 4 if channels <= 4 else -(-channels // 8) * 8

    @property
    def run(self) -> tuple[int, int, bool, int]:
        """Taps, elements of a tap, whether the last tap comes first, elements with their room."""
        _, _, step = self.phases["STEP"]
        taps = self.phases["TAPS"][2] if abs(step) == 1 else 1
        size = taps * self.tap
        rooms = {block: -(-size // block) * block for block in (64, 32, 16)}
        block = min(rooms, key=lambda block: rooms[block] * (1 + _BLOCK_COST / block))
        return taps, self.tap, taps > 1 and step < 0, rooms[block]

    @property
    def runs(self) -> Sizes:
        """How many a place meets in each direction."""
        depth, height, width = self.phases["TAPS"]
        return depth, height, width // self.run[0]

    @property
    def before(self) -> Sizes:
        """Zeros that an image has before its first element."""
        return tuple(max(0, -low) for low, _ in self._reach)

    @property
    def room(self) -> Sizes:
        """Sizes of an image with zeros on all sides that outputs reach."""
        sizes = zip(self.before, self.sizes["INPUT"], self._reach, strict=True)
        return tuple(before + max(size, high + 1) for before, size, (_, high) in sizes)

    @property
    def start(self) -> Sizes:
        """Where the first run lies that place 0 meets, from where it meets its first tap."""
        depth, height, width = self.before
        taps, _, is_backward, _ = self.run
        return depth, height, width - (taps - 1 if is_backward else 0)

    @property
    def x_stride(self) -> Sizes:
        """Part, batch, group, depth, height, width."""
        depth, height, width = self.room
        row = width * self.tap
        image = depth * height * row
        batch = self.groups * image
        return self.sizes["BATCH"] * batch, batch, image, height * row, row, self.tap

    @property
    def weight_stride(self) -> Sizes:
        """Part, group, phase, filter."""
        size = math.prod(self.runs) * self.run[3]
        phase = -(-self.sizes["FILTERS"] // _FILTERS) * _FILTERS * size
        group = math.prod(self.phases["PHASES"]) * phase
        return self.groups * group, group, phase, size

    @property
    def _reach(self) -> tuple[tuple[int, int], ...]:
        """The first and the last place of the input that outputs meet, in each direction."""
        return tuple(self._reached(axis) for axis in range(3))

    def _reached(self, axis: int) -> tuple[int, int]:
        """As `conv_phase` places them."""
        named = {name: values[axis] for name, values in self.phases.items()}
        phases, padding, common = named["PHASES"], named["PADDING"], named["COMMON"]
        dilation = self.sizes["DILATION"][axis]
        first = [
            (at - at // common * named["INVERSE"] % (phases // common) * dilation) // phases
            for at in range(padding, padding + phases)
        ]
        last_tap = (named["TAPS"] - 1) * named["STEP"]
        last_place = (named["PLACES"] - 1) * self.walk[axis]
        return min(first) + min(last_tap, 0), max(first) + last_place + max(last_tap, 0)


def _launches(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    out: Tensor,
    layout: _Layout,
    precisions: Sequence[str],
) -> tuple[Launch, ...]:
    sizes, phases, groups = layout.sizes, layout.phases, layout.groups
    images = sizes["BATCH"] * groups
    phase_count = math.prod(phases["PHASES"])
    name = ast.unparse(out.pointer)
    place = f"device={ast.unparse(x.pointer)}.device, dtype=torch.float32"
    image_parts, image_inverses, largest, filter_parts, filter_inverses = (
        ast.Name(f"{name}_{what}", ast.Load())
        for what in ("parts", "inverses", "largest", "filter_parts", "filter_inverses")
    )

    def only(*names: str) -> dict[str, Any]:
        return {one: phases[one] if one in phases else sizes[one] for one in names}

    positions = math.prod(sizes["INPUT"])
    chunks = min(_MOST_CHUNKS, -(-positions // _CHUNK))
    find = Launch(
        kernel="conv_largest_kernel",
        grid=f"({chunks}, {images})",
        pointers=(x.pointer, largest),
        constants={"GROUPS": groups, **only("CHANNELS", "INPUT", "X_STRIDE")}
        | {"CHUNKS": chunks, "BLOCK": _CHUNK},
        tunables={},
        before=(f"{ast.unparse(largest)} = torch.empty({images * chunks}, {place})",),
    )
    width = min(64, 1 << (layout.tap - 1).bit_length())
    lines = 4096 // width
    pack = Launch(
        kernel="conv_pack_kernel",
        grid=f"({-(-math.prod(layout.room) // lines)}, {images})",
        pointers=(x.pointer, largest, image_parts, image_inverses),
        constants={"GROUPS": groups, **only("CHANNELS", "INPUT")}
        | {"ROOM": layout.room, "BEFORE": layout.before, **only("X_STRIDE")}
        | {"PART_STRIDE": layout.x_stride, "CHUNKS": chunks, "LINES": lines, "WIDTH": width},
        tunables={},
        before=(
            room_for_parts(f"{name}_parts", layout.x_stride[0], x.pointer),
            f"{ast.unparse(image_inverses)} = torch.empty({images}, {place})",
        ),
        shared=("INPUT_PRECISION",),
    )
    met = only("KERNEL", "PHASES", "PADDING", "DILATION", "COMMON", "INVERSE")
    runs = {"RUNS": layout.runs, "RUN": layout.run}
    inverses = groups * phase_count * sizes["FILTERS"]
    cut = Launch(
        kernel="conv_filters_kernel",
        grid=f"({sizes['FILTERS']}, {groups}, {phase_count})",
        pointers=(weight.pointer, filter_parts, filter_inverses),
        constants={**only("CHANNELS"), **met, **runs, **only("SPREAD", "WEIGHT_STRIDE")}
        | {"PART_STRIDE": layout.weight_stride, "BLOCK": 1024},
        tunables={},
        before=(
            room_for_parts(f"{name}_filter_parts", layout.weight_stride[0], x.pointer),
            f"{ast.unparse(filter_inverses)} = torch.empty({inverses}, {place})",
        ),
        shared=("INPUT_PRECISION",),
    )
    rows = sizes["BATCH"] * math.prod(phases["PLACES"])
    multiply = Launch(
        kernel="conv_packed_kernel",
        grid=f"({phase_count} * {tiles(rows, sizes['FILTERS'])}, {groups})",
        pointers=(
            *(image_parts, filter_parts, image_inverses, filter_inverses),
            *(bias.pointer if bias else NOTHING, out.pointer),
        ),
        constants={**only("BATCH", "FILTERS", "OUTPUT"), **met, **only("PLACES")}
        | {"WALK": layout.walk, "START": layout.start, **only("STEP"), **runs}
        | {"X_STRIDE": layout.x_stride, "WEIGHT_STRIDE": layout.weight_stride}
        | only("OUT_STRIDE"),
        tunables=_tunables(rows, sizes["FILTERS"], layout.run[3], precisions),
    )
    return find, pack, cut, multiply


def _tunables(rows: int, filters: int, room: int, precisions: Sequence[str]) -> dict[str, Blocks]:
    deepest = math.gcd(room, 64)
    return {
        "BLOCK_M": powers(64, 256, rows, 128),
        "BLOCK_N": powers(16, _FILTERS, filters, 128),
        "BLOCK_K": powers(16, deepest, deepest, deepest),
        "GROUP_M": one_of(1, 8, first=8),
        "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
        "num_warps": one_of(4, 8, first=8),
        "num_stages": one_of(2, 3, 4, first=3),
    }
