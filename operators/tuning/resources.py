"""What an instance needs at the least, against what a multiprocessor has.

Only what cannot fit is left out: the numbers are lower bounds, of a compiler that wastes nothing.
"""

import math
from collections.abc import Mapping

from evolve.core.program import Assignment, TunableValue
from evolve.core.tunables import Space
from operators.tuning.groups import by_kernel

SHARED_MEMORY = 232_448  # bytes that a block may have on an H100 or H200, the most there is
REGISTERS = 255  # of 32 bits that a thread may have
_WARP = 32
_SPILLED = 4  # times as many values as registers, and the program runs from local memory
_TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K")


def fits(space: Space, assignment: Assignment) -> bool:
    """Whether every kernel of the instance can have what it needs."""
    for group in by_kernel(space).values():
        values = {ending: assignment.get(each.name, each.default) for ending, each in group.items()}
        if not _has_room(values):
            return False
    return True


def _has_room(values: Mapping[str, TunableValue | None]) -> bool:
    """Whether tiles of a product fit into shared memory, and what a thread holds into registers."""
    sizes = {name: value for name, value in values.items() if isinstance(value, int)}
    threads = _WARP * sizes.get("NUM_WARPS", 4)
    if all(name in sizes for name in _TILE):
        rows, columns, depth = (sizes[name] for name in _TILE)
        width = 4 if "INPUT_PRECISION" in values else 2  # bytes; only float32 has a choice
        buffers = max(sizes.get("NUM_STAGES", 3) - 1, 1)
        if (rows + columns) * depth * width * buffers > SHARED_MEMORY:
            return False
        return rows * columns <= REGISTERS * threads
    blocks = [value for name, value in sizes.items() if name.endswith("BLOCK")]
    return math.prod(blocks) <= _SPILLED * REGISTERS * threads
