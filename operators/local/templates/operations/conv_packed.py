"""Launches for convolutions of float32 whose images and filters are cut into parts beforehand."""

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from operators.local.inductor.blocks import Blocks
from operators.local.templates.launch import Launch, one_of, powers, room
from operators.local.templates.operations.convolution import (
    Convolution,
    Settings,
    Sizes,
    phases_of,
    tiles,
)
from operators.local.templates.operations.matrices import How
from operators.local.templates.operations.packed import deletion, known, room_for_parts
from operators.local.templates.tensors import HALF, Tensor, pointer_of

# Products for each element of an image. Kernels that gather from images as they lie are so much
# slower on an H200 that cutting pays long before it does for matrices.
_MIN_REUSE = 32
_MIN_FILTERS = 4  # of a group
_FEW_STEPS = 4  # blocks of the depth: stores take longer than products, for which small blocks do
_MAX_OF_FILTERS = 2**27  # elements: many phases that meet few taps have all of them
_MAX_FILTER = 2**14  # elements of one, which a program holds whole
_BLOCK = 2048
_MAX_CHUNKS = 256  # of an image, for each of which a program finds the largest element
_LINES = 4096  # elements of a block of images to be cut
_UNDER_WAY = 1024  # programs that cut images; with fewer, each has fewer channels
BLOCK_COST = 16  # a block of the depth takes as long as so many elements more than it has


def launches(whole: Convolution, how: How = How.PACKED) -> tuple[Launch, ...] | None:
    """Alternative to `convolution.launch`; None if that is to be preferred.

    That is so for fp16 and bf16, if there is too little to do for this to pay, and if parts would
    be too many.
    """
    layout = layout_of(whole)
    if not pays(whole, layout) or not layout.has_room:
        return None
    kernels = Kernels(
        cut="conv_filters_kernel",
        cut_constants=layout.only("CHANNELS") | layout.met | layout.only("SPREAD"),
        multiply="conv_packed_kernel",
        constants={**layout.only("BATCH", "FILTERS", "OUTPUT"), **layout.met}
        | {**layout.only("PLACES"), "WALK": layout.walk, "START": layout.start}
        | layout.only("STEP"),
        phases=(math.prod(layout.phases["PHASES"]),),
    )
    return kernels.launches(whole, layout, known(whole.precisions, layout.depth, how))


def layout_of(whole: Convolution) -> "Layout":
    """Where the parts lie."""
    sizes, settings = whole.sizes, whole.settings
    walk = (1, 1, 1) if settings.transposed else settings.stride
    return Layout(sizes, _phases(sizes, settings), walk, settings.groups)


def pays(whole: Convolution, layout: "Layout") -> bool:
    """Whether there is enough to do for an element of float32 that is cut."""
    if tuple(whole.precisions) == HALF:
        return False
    filters = layout.sizes["FILTERS"]
    reuse = math.prod(layout.sizes["KERNEL"]) * filters // math.prod(layout.walk)
    return bool(filters >= _MIN_FILTERS and reuse >= _MIN_REUSE)


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
class Layout:
    """Where parts lie.

    Attributes:
        sizes: of the convolution.
        phases: of its outputs, and their inputs.
        walk: inputs from one place of a phase to the next.
        groups: of channels.
    """

    sizes: Mapping[str, Any]
    phases: Mapping[str, Sizes]
    walk: Sizes
    groups: int

    def only(self, *names: str) -> dict[str, Any]:
        """Constants of these names."""
        return {name: (self.phases if name in self.phases else self.sizes)[name] for name in names}

    @property
    def met(self) -> dict[str, Any]:
        """Constants that describe the inputs of a phase."""
        own = self.only("KERNEL", "PHASES", "PADDING", "DILATION", "COMMON", "INVERSE")
        return own | {"RUNS": self.runs, "RUN": self.run}

    @property
    def has_room(self) -> bool:
        """Whether parts are few enough, and a filter small enough for a program to hold it."""
        most, *_, longest = self.filter_stride
        are_few = most <= _MAX_OF_FILTERS and math.prod(self.room) * self.tap < 2**31
        return are_few and longest <= _MAX_FILTER

    @property
    def depth(self) -> int:
        """Products that a place adds up, at most."""
        return math.prod(self.phases["TAPS"]) * int(self.sizes["CHANNELS"])

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
        block = min(rooms, key=lambda block: rooms[block] * (1 + BLOCK_COST / block))
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
    def image_stride(self) -> Sizes:
        """Part, batch, group, depth, height, width."""
        depth, height, width = self.room
        row = width * self.tap
        image = depth * height * row
        batch = self.groups * image
        return self.sizes["BATCH"] * batch, batch, image, height * row, row, self.tap

    @property
    def filter_stride(self) -> Sizes:
        """Part, group, phase, filter."""
        size = math.prod(self.runs) * self.run[3]
        phase = self.sizes["FILTERS"] * size
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


def _image_launches(
    x: Tensor, layout: Layout, parts: ast.expr, exponents: ast.expr
) -> tuple[Launch, Launch]:
    """Kernels that find the largest elements of images, and that split images into parts."""
    sizes = layout.sizes
    images = sizes["BATCH"] * layout.groups
    size = sizes["CHANNELS"] * math.prod(sizes["INPUT"])
    (_, *inner), strides = _merged((sizes["CHANNELS"], *sizes["INPUT"]), sizes["X_STRIDE"][2:])
    largest = ast.Name(ast.unparse(exponents).replace("exponents", "largest"), ast.Load())
    chunk = -(-size // (_MAX_CHUNKS * _BLOCK)) * _BLOCK
    chunks = -(-size // chunk)
    find = Launch(
        kernel="conv_largest_kernel",
        grid=f"({chunks * images},)",
        pointers=(x.pointer, largest),
        constants={"GROUPS": layout.groups, **layout.only("X_STRIDE"), "SIZE": size}
        | {"SIZES": tuple(inner), "STRIDES": strides, "CHUNKS": chunks, "CHUNK": chunk}
        | {"BLOCK": _BLOCK},
        tunables={},
        before=(room(largest, chunks * images, x.pointer, "float32"),),
    )
    width = min(64, 1 << (layout.tap - 1).bit_length())
    lines = _LINES // width
    blocks = -(-math.prod(layout.room) // lines) * images
    depth = -(-layout.tap // (width * -(-_UNDER_WAY // blocks))) * width
    kept = {"GROUPS": layout.groups, **layout.only("CHANNELS", "INPUT")}
    place = {"ROOM": layout.room, "BEFORE": layout.before, **layout.only("X_STRIDE")}
    pack = Launch(
        kernel="conv_pack_kernel",
        grid=f"({blocks}, {-(-layout.tap // depth)})",
        pointers=(x.pointer, largest, parts, exponents),
        constants={**kept, **place, "PART_STRIDE": layout.image_stride}
        | {"CHUNKS": chunks, "LINES": lines, "WIDTH": width, "DEPTH": depth},
        tunables={},
        before=(
            room_for_parts(parts, layout.image_stride[0], x.pointer),
            room(exponents, images, x.pointer, "int32"),
        ),
        after=(deletion(largest),),
        shared=("INPUT_PRECISION",),
    )
    return find, pack


def _merged(sizes: Sizes, strides: Sizes) -> tuple[Sizes, Sizes]:
    """The same elements in as few axes as they can be, and axes of one element after these."""
    axes: list[tuple[int, int]] = []
    for size, stride in sorted(zip(sizes, strides, strict=True), key=lambda axis: -axis[1]):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            size *= axes.pop()[0]
        axes.append((size, stride))
    axes += [(1, 1)] * (len(sizes) - len(axes))
    merged, steps = zip(*axes, strict=True)
    return merged, steps


def _block_tunables(
    rows: int, filters: int, layout: Layout, precisions: Sequence[str], multiprocessors: int
) -> dict[str, Blocks]:
    """Sizes of blocks, and how they are computed, of positions (rows) by filters."""
    room = layout.run[3]
    deepest = math.gcd(room, 64)
    is_short = math.prod(layout.runs) * room <= _FEW_STEPS * deepest
    copies = math.prod(layout.phases["PHASES"]) * layout.groups
    block_m, block_n = next(
        (
            block
            for block in ((128, 128), (128, 64), (64, 64))[is_short:]
            if -(-rows // block[0]) * -(-filters // block[1]) * copies >= multiprocessors
        ),
        (64, 32),
    )
    return {
        "BLOCK_M": powers(64, 256, rows, block_m),
        "BLOCK_N": powers(16, 256, filters, block_n),
        "BLOCK_K": powers(16, deepest, deepest, deepest),
        "GROUP_M": one_of(1, 8, first=8),
        "INPUT_PRECISION": one_of(*precisions, first=precisions[0]),
        "num_warps": one_of(4, 8, first=8 if block_n == 128 else 4),
        "num_stages": one_of(2, 3, 4, first=3),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """The kernels of a convolution whose images and filters are cut into parts.

    Attributes:
        cut: the one that cuts filters, with constants.
        multiply: the one that multiplies parts, with constants, but for strides.
        phases: numbers of programs for each filter of a group, and for each tile.
    """

    cut: str
    cut_constants: Mapping[str, Any]
    multiply: str
    constants: Mapping[str, Any]
    phases: tuple[int, ...] = ()

    def launches(
        self, whole: Convolution, layout: Layout, precisions: Sequence[str]
    ) -> tuple[Launch, ...]:
        """The launches that cut the images, cut the filters, and multiply both."""
        images, filters, image_exponents, filter_exponents = operands = [
            ast.Name(f"{ast.unparse(whole.out.pointer)}_{part}", ast.Load())
            for part in ("parts", "filters", "exponents", "filter_exponents")
        ]
        columns = layout.sizes["FILTERS"]
        rows = layout.sizes["BATCH"] * math.prod(layout.phases["PLACES"])
        grid = " * ".join([*map(str, self.phases), tiles(rows, columns)])
        multiply = Launch(
            kernel=self.multiply,
            grid=f"({grid}, {layout.groups})",
            pointers=(*operands, pointer_of(whole.bias), whole.out.pointer),
            constants={**self.constants, "IMAGE_STRIDE": layout.image_stride}
            | {"FILTER_STRIDE": layout.filter_stride, **layout.only("OUT_STRIDE")},
            tunables=_block_tunables(rows, columns, layout, precisions, whole.multiprocessors),
            after=(deletion(*operands),),
        )
        return (
            *_image_launches(whole.x, layout, images, image_exponents),
            self._filter_launch(whole.weight, layout, filters, filter_exponents),
            multiply,
        )

    def _filter_launch(
        self, weight: Tensor, layout: Layout, parts: ast.expr, exponents: ast.expr
    ) -> Launch:
        """The launch that cuts filters, with a program for each filter of each group and phase."""
        programs = layout.sizes["FILTERS"], layout.groups, *self.phases
        block = 1 << (layout.filter_stride[-1] - 1).bit_length()
        return Launch(
            kernel=self.cut,
            grid=f"({', '.join(map(str, programs))})",
            pointers=(weight.pointer, parts, exponents),
            constants={**self.cut_constants, **layout.only("WEIGHT_STRIDE")}
            | {"PART_STRIDE": layout.filter_stride, "BLOCK": block, "num_warps": 8},
            tunables={},
            before=(
                room_for_parts(parts, layout.filter_stride[0], weight.pointer),
                room(exponents, math.prod(programs), weight.pointer, "int32"),
            ),
            shared=("INPUT_PRECISION",),
        )
