"""The C library's heap of this process."""

import ctypes
import sys

# Parameters of mallopt(3), glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX, _ARENA_MAX = -1, -2, -4, -8


def keep_freed_memory() -> None:
    """Let freed memory stay with the process, up to 1 GiB at its end, for the next tensors.

    The default maps every large tensor anew. Its pages, of 4 KiB each, then take the kernel as long
    as a comparison of outputs takes. To be called before threads start, which would get heaps of
    their own. Another C library than glibc keeps its own rules.
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
