"""A changed function as text: unchanged parts as they were written, with comments."""

import ast
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from operators.local.inductor.layout import MAX_LINE, statement_text

_STEP = " " * 4


def function_text(function: ast.FunctionDef, source: str) -> str:
    """A function of which most was read from the source, and some is new."""
    decorators = [f"@{ast.unparse(decorator)}" for decorator in function.decorator_list]
    body = _block(function.body, _STEP, source.splitlines())
    return "\n".join([*decorators, _signature(function), *body])


def _signature(function: ast.FunctionDef) -> str:
    """On one line, or with a parameter on each."""
    line = f"def {function.name}({ast.unparse(function.args)}):"
    if len(line) <= MAX_LINE or function.args.defaults:
        return line
    parameters = [f"{_STEP}{ast.unparse(argument)}," for argument in function.args.args]
    return "\n".join([f"def {function.name}(", *parameters, "):"])


def _block(body: Iterable[ast.stmt], indent: str, lines: Sequence[str]) -> Iterator[str]:
    for node in body:
        yield from (indent + comment for comment in _comments(node, lines))
        written = _as_written(node, lines)
        fits = all(len(indent) + len(line) <= MAX_LINE for line in written)
        if written and (fits or not _is_call(node)):
            yield from (indent + line if line else "" for line in written)
        elif isinstance(node, ast.For | ast.While | ast.If) and not node.orelse:
            yield indent + ast.unparse(_headed(node)).splitlines()[0]
            yield from _block(node.body, indent + _STEP, lines)
        else:
            yield from textwrap.indent(
                statement_text(node, MAX_LINE - len(indent)), indent
            ).splitlines()


def _as_written(node: ast.stmt, lines: Sequence[str]) -> list[str]:
    """The statement's lines, or nothing if they say something else."""
    if not hasattr(node, "lineno"):
        return []
    text = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    try:
        found = ast.parse(text).body
    except SyntaxError:
        return []
    return text.splitlines() if list(map(ast.unparse, found)) == [ast.unparse(node)] else []


def _comments(node: ast.stmt, lines: Sequence[str]) -> list[str]:
    """Lines right above a statement that hold nothing but a comment."""
    found: list[str] = []
    above = getattr(node, "lineno", 1) - 2
    while above >= 0 and lines[above].lstrip().startswith("#"):
        found.insert(0, lines[above].strip())
        above -= 1
    return found


def _headed(node: ast.For | ast.While | ast.If) -> ast.stmt:
    """The statement around nothing."""
    if isinstance(node, ast.For):
        return ast.fix_missing_locations(ast.For(node.target, node.iter, [ast.Pass()], []))
    return type(node)(node.test, [ast.Pass()], [])


def _is_call(node: ast.stmt) -> bool:
    """Whether it can go over more lines."""
    return isinstance(node, ast.Assign | ast.Expr) and isinstance(node.value, ast.Call)
