"""Calls and launches of kernels as text, on lines that are not too long."""

import ast
from collections.abc import Iterator, Sequence

LONGEST_LINE = 88
_STEP = " " * 4


def call_text(head: str, arguments: Sequence[str], width: int) -> str:
    """A call on one line, or with as many arguments on each line as fit.

    Args:
        head: all up to the arguments; of several lines, the last one counts.
        arguments: as text.
        width: columns that there are.
    """
    start = head.rpartition("\n")[2]
    line = f"{head}{', '.join(arguments)})"
    if len(start) + len(line) - len(head) <= width and "\n" not in head:
        return line
    lines: list[str] = []
    for argument in arguments:
        if lines and len(lines[-1]) + len(argument) + 2 <= width:
            lines[-1] += f" {argument},"
        else:
            lines.append(f"{_STEP}{argument},")
    return "\n".join([head, *lines, ")"])


def launch_text(kernel: str, grid: ast.expr, arguments: Sequence[str], width: int) -> str:
    """A launch `kernel[grid](arguments)`."""
    head = f"{kernel}[{ast.unparse(grid)}]("
    if len(head) > width:
        head = "\n".join([f"{kernel}[", *_grid_lines(grid, width), "]("])
    return call_text(head, arguments, width)


def _grid_lines(grid: ast.expr, width: int) -> Iterator[str]:
    line = f"{_STEP}{ast.unparse(grid)}"
    if len(line) <= width or not isinstance(grid, ast.Tuple):
        yield line
        return
    yield f"{_STEP}("
    for count in map(ast.unparse, grid.elts):
        factors = count.split(" * ") if 2 * len(_STEP) + len(count) >= width else [count]
        yield f"{_STEP * 2}{factors[0]}{'' if factors[1:] else ','}"
        for at, factor in enumerate(factors[1:], 2):
            yield f"{_STEP * 2}* {factor}{',' if at == len(factors) else ''}"
    yield f"{_STEP})"
