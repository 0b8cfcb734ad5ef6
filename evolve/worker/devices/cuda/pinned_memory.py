"""Page-locked memory of the host: where outputs wait that a GPU has no room for.

A copy engine fills it at some 50 GB/s; pages of the usual kind take seconds for each of such an
output, and so does locking them. So it is reserved before anything is timed, and torch, which
caches freed memory, gives it out again at once.
"""

import contextlib
from collections import Counter
from pathlib import Path

import torch
from torch import Tensor

from evolve.worker.sandbox import procfs

_KEPT = 4  # one part in so many of the host's memory is not for this
_GROUP = Path("/sys/fs/cgroup")


class PageLocked:
    """Reserves it. Torch keeps the last reservation until there is another, or the process ends."""

    def __init__(self) -> None:
        self._reserved: Counter[int] = Counter()
        self._is_refused = False

    def reserve(self, sizes: list[int]) -> bool:
        """Have so many buffers of so many bytes at hand, all at once; whether they are."""
        wanted = Counter(map(_rounded, sizes))
        if wanted <= self._reserved:
            return True
        _let_go()
        self._reserved.clear()
        # After a refusal of the driver, torch would try again in vain.
        if self._is_refused or sum(wanted.elements()) > _to_spare():
            return False
        try:
            buffers = [buffer(size) for size in sizes]
        except RuntimeError:  # of several types
            self._is_refused = True
            return False
        del buffers
        self._reserved = wanted
        return True


def buffer(size: int) -> Tensor:
    """So many bytes; at once where they are reserved. RuntimeError if there are none."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def memory(host: dict[str, int], group: Path) -> tuple[int, int]:
    """Bytes that there are, and that are free: of the host, or of our share of it (cgroup v2)."""
    total, free = host["MemTotal"], host["MemAvailable"]
    try:
        limit = int((group / "memory.max").read_text())
        lines = (group / "memory.stat").read_text().splitlines()
        given_up = int(dict(line.split() for line in lines)["inactive_file"])  # when it is wanted
        used = int((group / "memory.current").read_text()) - given_up
    except (OSError, ValueError, KeyError):  # no limit, or another version
        return total, free
    return min(total, limit), min(free, limit - used)


def _to_spare() -> int:
    total, free = memory(procfs.meminfo(), _GROUP)
    return free - total // _KEPT


def _rounded(size: int) -> int:
    """As torch rounds."""
    return 1 << max(size - 1, 0).bit_length()


def _let_go() -> None:
    """Of memory that is not used any more."""
    public = getattr(torch.accelerator, "empty_host_cache", None)  # not in all versions
    empty = public or getattr(torch._C, "_host_emptyCache", None)
    if empty:
        with contextlib.suppress(RuntimeError):  # there is no GPU
            empty()
