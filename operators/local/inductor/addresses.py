"""Reading the addresses that kernels of Inductor load from."""

import ast
import re
from collections.abc import Iterator

OF_REDUCTION = re.compile(r"r(index|\d*_?(index|\d+))$")
"""Names of reduced dimensions; others are `xindex`, `x0`, `y1` and the like."""


def terms(sum_: ast.expr) -> Iterator[ast.expr]:
    """The terms of a sum, in order; an expression that is no sum is the only term."""
    match sum_:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from terms(left)
            yield from terms(right)
        case _:
            yield sum_
