"""Calls and launches of kernels as text, on lines that are not too long."""

import ast
import textwrap
from collections.abc import Iterator, Sequence

MAX_LINE = 88
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
    if len(lines) == 1:
        lines = [lines[0].removesuffix(",")]
    return "\n".join([head, *lines, ")"])


def launch_text(kernel: str, grid: ast.expr, arguments: Sequence[str], width: int) -> str:
    """A launch `kernel[grid](arguments)`."""
    head = f"{kernel}[{ast.unparse(grid)}]("
    if len(head) > width:
        head = "\n".join([f"{kernel}[", *_grid_lines(grid, width), "]("])
    return call_text(head, arguments, width)


def statement_text(node: ast.stmt, width: int) -> str:
    """A statement; a call, or an assignment of one, over several lines if it has to be."""
    match node:
        case ast.Assign(value=ast.Call() as call) | ast.Expr(value=ast.Call() as call):
            arguments = [*map(ast.unparse, call.args), *map(ast.unparse, call.keywords)]
            head = ast.unparse(node).removesuffix(f"({', '.join(arguments)})")
            return call_text(f"{head}(", arguments, width)
    return ast.unparse(node)


def body_text(body: Sequence[ast.stmt], indent: str) -> str:
    """Statements of a function, those of its loops too."""
    lines = []
    for node in body:
        if isinstance(node, ast.For) and not node.orelse:
            lines.append(f"{indent}for {ast.unparse(node.target)} in {ast.unparse(node.iter)}:")
            lines.append(body_text(node.body, indent + _STEP))
        else:
            text = statement_text(node, MAX_LINE - len(indent))
            lines.append(textwrap.indent(text, indent))
    return "\n".join(lines)


def _grid_lines(grid: ast.expr, width: int) -> Iterator[str]:
    line = f"{_STEP}{ast.unparse(grid)}"
    if len(line) <= width or not isinstance(grid, ast.Tuple):
        yield line
        return
    yield f"{_STEP}("
    for count in grid.elts:
        *lines, last = _count_lines(count, width - 2 * len(_STEP) - 1)
        yield from (f"{_STEP * 2}{line}" for line in lines)
        yield f"{_STEP * 2}{last},"
    yield f"{_STEP})"


def _count_lines(count: ast.expr, width: int) -> list[str]:
    """A number of programs; a product or a call that is too long, over several lines."""
    text = ast.unparse(count)
    match count:
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if len(text) > width:
            return [*_count_lines(left, width), f"* {ast.unparse(right)}"]
        case ast.Call(func=function, args=arguments) if len(text) > width:
            texts = list(map(ast.unparse, arguments))
            return call_text(f"{ast.unparse(function)}(", texts, width).splitlines()
    return [text]
