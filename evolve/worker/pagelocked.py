"""Page-locked memory of the host: where outputs wait that a GPU has no room for.

A copy engine fills it at some 50 GB/s; pages of the usual kind take seconds for each of such an
output. Torch keeps what was let go of for the next one of its size.
"""

import contextlib
from pathlib import Path

import torch
from torch import Tensor

from evolve.worker import procfs

_KEPT = 4  # one part in so many of the host's memory is not for this
_GROUP = Path("/sys/fs/cgroup")


def page_locked(size: int) -> Tensor | None:
    """So many bytes; None where the host has too few to spare."""
    needed = 1 << max(size - 1, 0).bit_length()  # torch rounds up
    if needed > _to_spare():
        _let_go()
        if needed > _to_spare():
            return None
    try:
        return torch.empty(size, dtype=torch.uint8, pin_memory=True)
    except RuntimeError:  # of several types: the driver refuses, or there is none
        return None


def reserve(sizes: list[int]) -> None:
    """Have torch keep memory for as many as these at once, as far as there is any."""
    buffers = [page_locked(size) for size in sizes]
    buffers.clear()  # not one by one, or the next would get what the last had


def start_threads() -> None:
    """Have torch start the threads that lock pages, which stay on the caller's cores for good."""
    page_locked(1 << 20)


def _to_spare() -> int:
    total, free = memory(procfs.meminfo(), _GROUP)
    return free - total // _KEPT


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


def _let_go() -> None:
    """Of what nobody uses any more."""
    public = getattr(torch.accelerator, "empty_host_cache", None)  # not in all versions
    empty = public or getattr(torch._C, "_host_emptyCache", None)
    if empty:
        with contextlib.suppress(RuntimeError):  # there is no GPU
            empty()
