"""Layouts of a kernel's block in Gluon; programs get copies of those that they use.

Numbers are powers of two. A thread has up to four elements side by side: 16 bytes of float32.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def flat_layout(size, warps):
    """Of a block of one axis."""
    each = max(1, min(4, size // (32 * warps)))
    return gl.BlockedLayout([each], [32], [warps], [0])


@gluon.constexpr_function
def rows_layout(rows, columns, warps):
    """Of rows whose elements lie side by side: as many warps as there are rows, if they suffice."""
    across = max(1, min(columns // 4, 32))
    above = min(rows, warps)
    return gl.BlockedLayout(
        [1, min(4, columns)], [32 // across, across], [above, warps // above], [1, 0]
    )


@gluon.constexpr_function
def columns_layout(rows, columns, warps):
    """Of columns whose elements lie side by side."""
    across = max(1, min(rows, 32))
    return gl.BlockedLayout([1, 1], [across, 32 // across], [1, warps], [0, 1])
