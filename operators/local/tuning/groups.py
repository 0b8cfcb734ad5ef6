"""Tunables of one kernel, told by their names: all that begin alike and end as a launch does.

Compiler seeds and templates call them `GELU_XBLOCK`, `MATMUL_BLOCK_M`, `MATMUL_NUM_WARPS`; a
program of one kernel leaves the beginning out.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from evolve.core.source.tunables import Space, Tunable

_ENDING = re.compile(
    r"(?i)(XBLOCK|YBLOCK|ZBLOCK|R\d_BLOCK|BLOCK(_[A-Z]+)?|NUM_(WARPS|STAGES)|GROUP_M|PARTS"
    r"|INPUT_PRECISION|PROGRAMS|STAGES)$"
)


@lru_cache(maxsize=16)
def by_kernel(space: Space) -> Mapping[str, Mapping[str, Tunable]]:
    """Tunables by the beginning of their names, then by the ending; all of one that is unknown."""
    found: dict[str, dict[str, Tunable]] = {}
    for tunable in space:
        match = _ENDING.search(tunable.name)
        start = match.start() if match else 0
        prefix, ending = tunable.name[:start], tunable.name[start:]
        found.setdefault(prefix if match else "", {})[ending.upper()] = tunable
    return found
