"""The C library's heap: freed memory stays with a process, for its next tensors.

The default maps every large tensor anew. Its pages, of 4 KiB each, then take the kernel as long as
a comparison of outputs takes, and longer than many a kernel.
"""

import ctypes
import sys

VARIABLES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Of processes that run candidates: the same for every side of a comparison."""

# Parameters of mallopt(3), glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> None:
    """The same for this process, up to 1 GiB at the heap's end.

    To be called before threads start, which would get heaps of their own. Another C library than
    glibc keeps its own rules.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if not sys.platform.startswith("linux") or mallopt is None:
        return
    for parameter, value in (
        (_ARENA_MAX, 1),
        (_MMAP_MAX, 0),
        (_TRIM_THRESHOLD, 1 << 30),
        (_TOP_PAD, 64 << 20),
    ):
        mallopt(parameter, value)
