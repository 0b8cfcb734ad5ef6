"""Block sizes: which are worth trying for a kernel, and which to begin with.

The choices are ours; Inductor's own heuristics pick one of about as many at run time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from operators.inductor.reading import RawKernel

WARPS = "num_warps"
_MOST_ELEMENTS = 16384  # of a block; more would spill
_ELEMENTS_PER_WARP = 512


@dataclass(frozen=True, slots=True)
class Blocks:
    """Choices for one tunable, rising, and the one that the program is written with."""

    choices: tuple[int | str, ...]
    first: int | str


def choose(
    raw: RawKernel, sizes: Mapping[str, int], blocked: Sequence[str], exact: frozenset[str]
) -> dict[str, Blocks]:
    """Tunables of a kernel by parameter of the launch.

    Args:
        raw: the kernel.
        sizes: elements by dimension, e.g. `xnumel`.
        blocked: parameters that are block sizes.
        exact: dimensions whose blocks have to divide their size.
    """
    wanted = _wanted(raw, sizes, blocked)
    found = {}
    for block in blocked:
        dimension = _dimension(block)
        size = sizes[f"{dimension}numel"]
        choices, first = wanted[block]
        most = _power_above(size)
        fitting = [
            c for c in choices if c <= most and (dimension not in exact or size % c == 0)
        ] or [_largest_divisor(size, min(choices)) if dimension in exact else most]
        found[block] = Blocks(tuple(fitting), min(fitting, key=lambda c: abs(c - first)))
    elements = _persistent_elements(raw, sizes)
    for blocks in found.values():
        elements *= int(blocks.first)
    warps = [1, 2, 4, 8, 16]
    usual = min(warps, key=lambda count: abs(count * _ELEMENTS_PER_WARP - elements))
    found[WARPS] = Blocks(tuple(w for w in warps if usual / 4 <= w <= usual * 4), usual)
    return found


def _wanted(
    raw: RawKernel, sizes: Mapping[str, int], blocked: Sequence[str]
) -> dict[str, tuple[tuple[int, ...], int]]:
    if raw.heuristic == "persistent_reduction":
        most = max(1, _MOST_ELEMENTS // _persistent_elements(raw, sizes))
        return {block: (_powers(1, min(most, 128)), max(1, most // 8)) for block in blocked}
    if raw.heuristic == "reduction":
        hint = str(raw.settings.get("reduction_hint", ""))
        if hint.endswith(("OUTER", "OUTER_TINY")):
            rows, columns = (_powers(8, 128), 32), (_powers(8, 128), 32)
        elif hint.endswith("INNER"):
            rows, columns = (_powers(1, 8), 1), (_powers(256, 4096), 2048)
        else:
            rows, columns = (_powers(1, 64), 8), (_powers(16, 1024), 256)
        return {block: columns if block.startswith("R") else rows for block in blocked}
    if len(blocked) == 1:
        return {blocked[0]: (_powers(128, 4096), 1024)}
    return {block: (_powers(4, 256), 32) for block in blocked}


def _persistent_elements(raw: RawKernel, sizes: Mapping[str, int]) -> int:
    """Elements of the dimensions that one block holds whole."""
    if raw.heuristic != "persistent_reduction":
        return 1
    elements = 1
    for name, size in sizes.items():
        if name.startswith("r"):
            elements *= _power_above(size)
    return elements


def _dimension(block: str) -> str:
    """`x` of `XBLOCK`, `r0_` of `R0_BLOCK`."""
    return block.removesuffix("BLOCK").lower()


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << k for k in range(low.bit_length() - 1, high.bit_length()))


def _power_above(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()


def _largest_divisor(size: int, most: int) -> int:
    """The largest power of two up to `most` that divides `size`."""
    return min(size & -size, most)
