"""A program as it differs from another one that a prompt shows in full."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from evolve.core.source.pytext import first_line

_WORTH_IT = 0.75  # of the text: what saves less is shown whole


def differing(source: str, known: str, name: str) -> str:
    r"""The top-level statements that `known` does not have; the others are named in a comment.

    Args:
        source: the program.
        known: the one that is shown in full.
        name: how the prompt calls that one.

    >>> function = "def f(x):\n    return x + 1 if x > 0 else x - 1\n"
    >>> differing(f"{function}X = 2", function, "program a")
    '# as in program a: f\nX = 2'
    """
    try:
        theirs = {dump for dump, _ in statements(known)}
        own = statements(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    lines = source.splitlines()
    parts: list[str] = []
    same: list[str] = []
    for dump, node in own:
        if dump in theirs:
            same += _names(node)
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and not parts:
            continue  # the module's own words about itself
        if same:
            parts.append(f"# as in {name}: {', '.join(same)}")
            same = []
        parts.append("\n".join(lines[first_line(node) - 1 : node.end_lineno]))
    if same:
        parts.append(f"# as in {name}: {', '.join(same)}")
    text = "\n".join(parts)
    return text if len(text) < _WORTH_IT * len(source) else source


@lru_cache(maxsize=64)  # prompts of a run show the same programs again and again
def statements(source: str) -> tuple[tuple[str, ast.stmt], ...]:
    """The top-level statements of a program, each with a text that is equal for equal ones."""
    return tuple((ast.dump(node), node) for node in ast.parse(source).body)


def _names(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=[ast.Name(id=name)]):
            yield name
        case ast.Import() | ast.ImportFrom():
            yield ast.unparse(node)
