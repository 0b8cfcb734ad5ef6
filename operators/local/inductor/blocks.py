"""Block sizes: which are worth trying for a kernel, and which to begin with.

The choices are this project's; Inductor's own heuristics pick one of about as many at run time.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from operators.local.inductor.addresses import OF_REDUCTION, terms
from operators.local.inductor.reading import RawKernel

WARPS = "num_warps"
_MAX_ELEMENTS = 16384  # of a block; more would spill
_ELEMENTS_PER_WARP = 512
_POINTWISE_PER_WARP = 256
_ROW_PER_WARP = 128  # where a block is a piece of one row; as Inductor's heuristic has it
_ROW = 2048  # elements of such a piece
_MANY_LOADS = 8  # for an element, of neighbours mostly (pooling): more threads hide their latency
_WINDOW_BLOCK, _WINDOW_PER_WARP = 512, 64
_OUTER_ELEMENTS = 512  # of a block of a loop over rows: its columns lie side by side
_OUTER_WHOLE = 4096  # the same where a block holds all rows
_COLUMNS_AT_ONCE = 4096  # a device has so many blocks under way
_OF_THE_REST = re.compile(r"[xyz](index|\d+)$")


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
        if dimension in exact:  # else the largest power of two that divides the size
            fitting = [c for c in choices if size % c == 0] or [min(size & -size, *choices)]
        else:
            fitting = [c for c in choices if c <= most] or [most]
        found[block] = Blocks(tuple(fitting), min(fitting, key=lambda c: abs(c - first)))
    elements = _persistent_elements(raw, sizes)
    for blocks in found.values():
        elements *= int(blocks.first)
    each = _per_warp(raw, [int(blocks.first) for blocks in found.values()])
    warps = [1, 2, 4, 8, 16]
    usual = min(warps, key=lambda count: abs(count * each - elements))
    found[WARPS] = Blocks(tuple(w for w in warps if usual / 4 <= w <= usual * 4), usual)
    return found


def _per_warp(raw: RawKernel, blocks: Sequence[int]) -> int:
    """Elements of a block for each warp to begin with.

    On an H200, layernorm and softmax of rows of 16384, 2048 at a time, take 1.3 and 1.24 times as
    long with 4 warps as with 16; a cumulative sum is the slower the more there are.
    """
    if raw.heuristic == "reduction" and _direction(raw) == "INNER":
        is_piece_of_row = 1 in blocks and max(blocks) >= _ROW // 2
        scans = "tl.associative_scan" in _called(raw)
        return _ROW_PER_WARP if is_piece_of_row and not scans else _ELEMENTS_PER_WARP
    if raw.heuristic == "pointwise" and len(blocks) == 1:
        return _WINDOW_PER_WARP if _loads(raw) >= _MANY_LOADS else _POINTWISE_PER_WARP
    return _ELEMENTS_PER_WARP


def _loads(raw: RawKernel) -> int:
    return sum(called == "tl.load" for called in _called(raw))


def _called(raw: RawKernel) -> list[str]:
    calls = (node for node in ast.walk(raw.function) if isinstance(node, ast.Call))
    return [ast.unparse(node.func) for node in calls]


def _wanted(
    raw: RawKernel, sizes: Mapping[str, int], blocked: Sequence[str]
) -> dict[str, tuple[tuple[int, ...], int]]:
    if raw.heuristic == "persistent_reduction":
        elements = _persistent_elements(raw, sizes)
        most = max(1, _MAX_ELEMENTS // elements)
        usual = _OUTER_WHOLE // elements if _direction(raw) == "OUTER" else most // 8
        return _shared(sorted(blocked), sizes, _powers(1, min(most, 128)), max(1, usual))
    if raw.heuristic == "reduction":
        direction = _direction(raw)
        if direction == "OUTER":
            first = _columns_of(sizes.get("xnumel", 1))
            rows, columns = (_powers(2, 256), first), (_powers(2, 128), _OUTER_ELEMENTS // first)
        elif direction == "INNER":
            short = _ROW // 2 // _power_above(_reduced(sizes))
            rows, columns = (_powers(1, 8), max(1, short)), (_powers(256, 4096), _ROW)
        else:
            rows, columns = (_powers(1, 64), 8), (_powers(16, 1024), 256)
        reduced = sorted((block for block in blocked if block.startswith("R")), reverse=True)
        others = sorted(block for block in blocked if not block.startswith("R"))
        return _shared(others, sizes, *rows) | _shared(reduced, sizes, *columns)
    if len(blocked) == 1:
        first = _WINDOW_BLOCK if _loads(raw) >= _MANY_LOADS else 1024
        return {blocked[0]: (_powers(128, 4096), first)}
    return {block: (_powers(4, 256), 32) for block in blocked}


def _shared(
    blocked: Sequence[str], sizes: Mapping[str, int], choices: tuple[int, ...], first: int
) -> dict[str, tuple[tuple[int, ...], int]]:
    """Of dimensions, innermost first, those that together have the expressions for one."""
    found, taken = {}, 1
    for block in blocked:
        low, high, usual = (max(1, size // taken) for size in (choices[0], choices[-1], first))
        found[block] = _powers(low, high), usual
        taken *= min(_power_above(sizes[f"{_dimension(block)}numel"]), usual)
    return found


def _columns_of(size: int) -> int:
    """Columns of a block that reduces over rows, as Inductor's heuristic (2.13) has them.

    Few if there are few, so that all multiprocessors have some; 64 and more if loads of that many
    neighbours leave enough blocks.
    """
    if size <= 1024:
        return max(2, min(8, _power_above(size // 128)))
    return 16 if size < 8 * _COLUMNS_AT_ONCE else max(64, min(256, _power_above(size // 4096)))


def _direction(raw: RawKernel) -> str:
    """`INNER` if the reduced elements are contiguous in memory, `OUTER` if the others are.

    Inductor's own word, and without one the order in loads that have dimensions of both; empty if
    they differ.
    """
    hint = str(raw.settings.get("reduction_hint", ""))
    for name in ("INNER", "OUTER"):
        if hint.endswith((name, f"{name}_TINY")):
            return name
    found = {
        "INNER" if 1 in steps else "OUTER"
        for node in ast.walk(raw.function)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load"
        if (steps := list(_steps(node.args[0]))) and _has_other(node.args[0])
    }
    return found.pop() if len(found) == 1 else ""


def _has_other(pointer: ast.expr) -> bool:
    names = (node.id for node in ast.walk(pointer) if isinstance(node, ast.Name))
    return any(map(_OF_THE_REST.match, names))


def _steps(pointer: ast.expr) -> Iterator[int]:
    """The factors of the reduced dimensions in an address."""
    for term in terms(pointer):
        match term:
            case ast.BinOp(left=ast.Constant(value=int() as factor), op=ast.Mult(), right=of):
                yield from (factor * step for step in _steps(of))
            case ast.Name(id=name) if OF_REDUCTION.match(name):
                yield 1


def _persistent_elements(raw: RawKernel, sizes: Mapping[str, int]) -> int:
    """Elements of the dimensions that one block holds whole."""
    if raw.heuristic != "persistent_reduction":
        return 1
    return math.prod(_power_above(size) for name, size in sizes.items() if name.startswith("r"))


def _reduced(sizes: Mapping[str, int]) -> int:
    """Elements that are reduced to one."""
    return math.prod(size for name, size in sizes.items() if name.startswith("r"))


def _dimension(block: str) -> str:
    """`x` of `XBLOCK`, `r0_` of `R0_BLOCK`."""
    return block.removesuffix("BLOCK").lower()


def _powers(low: int, high: int) -> tuple[int, ...]:
    return tuple(1 << k for k in range(low.bit_length() - 1, high.bit_length()))


def _power_above(size: int) -> int:
    return 1 << max(size - 1, 0).bit_length()
