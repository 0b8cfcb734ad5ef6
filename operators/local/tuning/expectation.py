"""The expected time of instances before any is measured: how much of a device they leave idle.

A model of costs need not be right to save measurements, it only has to say where to begin: GPTune
gives one to its Gaussian process (Liu et al. 2021), Triton's `matmul_perf_model` left all but ten
configurations of a product to its autotuner. This one counts, for each launch, by how many octaves
it misses the usual targets:

- 256 threads for each multiprocessor with products, two warps for each of its four schedulers, and
  1024 without: half of the maximum keeps its memory busy (Volkov 2010);
- 16 rows of a product's tile for a warp, as many as an instruction of the tensor cores has (PTX
  ISA, `mma.m16n8k16`, `wgmma.m64` of four warps);
- 64 of a tile's sums for a thread, as in CUTLASS's first ones (Kerr et al. 2017): of more, few
  registers are left for operands and the parts that float32 is cut into, and of fewer, an operand
  is used less often. Tiles are those that live through a loop: their octaves add up, as those of
  attention's values and scores, and rows are those of the tile that has too few most;
- without products 1 to 8 elements for a thread: two loads of 16 bytes of float32 at the most.

If threads, rows or elements are too few for it, half of a device takes twice the time; any other
octave costs a tenth. Launches are taken to be equally long, as by the surrogate's covariance;
unknown ones count for nothing. For a program without launches in the form of our templates, nothing
is expected.
"""

import ast
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from evolve.core.program import Assignment, TunableValue
from evolve.core.source.pytext import read
from evolve.core.source.tunables import parse
from operators.local.structure.program import Launch, NotApplicable, names
from operators.local.tuning.device import Limits
from operators.local.tuning.resources import Need, constants, is_side, launched

Vector = NDArray[np.float64]
"""A number for each instance, or one for all."""

_OFF, _IDLE = 0.1, math.log(2)  # log time of an octave; 0.05 to 0.15 for the first do as well
_BUSY_WITH_PRODUCTS, _BUSY = 256, 1024  # threads of a multiprocessor
_ROWS = 16  # of a warp
_SUMS, _ELEMENTS = 64, 8  # of a thread
_MAX_VALUE = 1 << 62


def expected(source: str, assignments: Sequence[Assignment], limits: Limits) -> Vector:
    """Log speedups of instances of a program against one that wastes nothing, none above 0.

    Args:
        source: the program.
        assignments: values of its tunables; those left out are as written.
        limits: of the device.
    """
    total, launches = np.zeros(len(assignments)), _open_launches(source)
    if not launches:
        return total
    numbers = _numbers(source, assignments)
    for need, counts in launches:
        total -= _lost(need, counts, numbers, limits)
    return total / len(launches)


@lru_cache(maxsize=16)
def _open_launches(source: str) -> Sequence[tuple[Need, tuple[ast.expr, ...]]]:
    """Launches that differ and may lose by the tuned values, with programs by axis if known."""
    written = _numbers(source, ())
    tuned = {tunable.name for tunable in parse(source)} & written.keys()
    found = {}
    for need, launch in launched(source):
        counts = _counts(launch, written)
        deciding = _deciding(need, counts)
        used = {constant for name, (constant, _) in need.given if name in deciding}
        used |= {name for each in counts for name in names(each)}
        if used & tuned:
            found[need, *map(ast.unparse, counts)] = need, counts
    return tuple(found.values())


def _deciding(need: Need, counts: Sequence[ast.expr]) -> set[str]:
    """Parameters that the expected time of a launch depends on, apart from its programs."""
    sizes = {name for name, (_, value) in need.given if type(value) is int}
    sides = {side for tile in _tiles(need, sizes) for side in tile}
    if not need.multiplies:
        sides = {name for name in sizes if is_side(name)}
    return sides | {"num_warps"} if sides or counts else set()


def _tiles(need: Need, sizes: Container[str]) -> Iterator[tuple[str, ...]]:
    """Sides of a launch's tiles of sums, as far as their sizes are known."""
    for sides in need.carried:
        if len(sides) > 1 and all(side in sizes for side in sides):
            yield sides


def _numbers(source: str, assignments: Sequence[Assignment]) -> Mapping[str, Vector]:
    """A module's numbers: as written, and of a tunable those of all instances, if there are any."""
    known = constants(read(source).tree)
    found = {name: _number(value) for name, value in known.items() if type(value) is int}
    for name in {tunable.name for tunable in parse(source)} & found.keys() if assignments else ():
        found[name] = _number(*(one.get(name, known[name]) for one in assignments))
    return found


def _number(*values: TunableValue) -> Vector:
    """Sizes, of which none is below 1."""
    return np.array([min(max(int(value), 1), _MAX_VALUE) for value in values], float)


# --- programs of a launch -------------------------------------------------------------------------


def _counts(launch: Launch, numbers: Mapping[str, Vector]) -> tuple[ast.expr, ...]:
    """By axis, as expressions of the module's numbers; none if the grid is anything else."""
    try:
        for each in launch.counts:
            _count(each, numbers)
    except NotApplicable:
        return ()
    return tuple(launch.counts)


def _count(expression: ast.expr, numbers: Mapping[str, Vector]) -> Vector:
    match expression:
        case ast.Constant(int() as value):
            return _number(value)
        case ast.Name(id=name) if name in numbers:
            return numbers[name]
        case ast.BinOp(left, ast.Mult(), right):
            return _count(left, numbers) * _count(right, numbers)
        case ast.Call(func=ast.Attribute(attr="cdiv"), args=[whole, part]):
            rounded: Vector = np.ceil(_count(whole, numbers) / _count(part, numbers))
            return rounded
    raise NotApplicable(f"{ast.unparse(expression)} is not a count of programs")


# --- losses ---------------------------------------------------------------------------------------


def _lost(
    need: Need, counts: Sequence[ast.expr], numbers: Mapping[str, Vector], limits: Limits
) -> Vector:
    """Log time of a launch."""
    sizes = {
        parameter: numbers.get(name, _number(value))
        for parameter, (name, value) in need.given
        if type(value) is int
    }
    warps, lost = sizes.get("num_warps", _number(4)), np.zeros(1)
    if counts:
        programs = math.prod(_count(each, numbers) for each in counts)
        wanted = limits.multiprocessors * (_BUSY_WITH_PRODUCTS if need.multiplies else _BUSY)
        lost = _IDLE * _above(wanted / (programs * limits.warp * warps))
    if need.multiplies:
        return lost + _by_product(need, sizes, warps, limits)
    return lost + _by_size(sizes, limits.warp * warps)


def _by_product(need: Need, sizes: Mapping[str, Vector], warps: Vector, limits: Limits) -> Vector:
    """Of a launch with products, by the sums that live through a loop."""
    lost = idle = np.zeros(1)
    for sides in _tiles(need, sizes):
        sums = math.prod(sizes[side] for side in sides) / (limits.warp * warps)
        lost = lost + _OFF * _above(_SUMS / sums)
        if not limits.sums:  # which have a memory of their own there
            lost = lost + _OFF * _above(sums / _SUMS)
        idle = np.maximum(idle, _above(_ROWS * warps / sizes[sides[0]]))
    return lost + _IDLE * idle


def _by_size(sizes: Mapping[str, Vector], threads: Vector) -> Vector:
    """Of a launch without products, by the elements of a thread."""
    sides = [size for name, size in sizes.items() if is_side(name)]
    if not sides:
        return np.zeros(1)
    elements = math.prod(sides) / threads
    return _IDLE * _above(1 / elements) + _OFF * _above(elements / _ELEMENTS)


def _above(ratio: Vector) -> Vector:
    """By how many octaves a ratio is above 1."""
    octaves: Vector = np.maximum(np.log2(ratio), 0)
    return octaves
