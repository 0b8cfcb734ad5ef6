"""The parts of a program that an edit may change.

`free` leaves everything open. `strict` is the constraint set of Kernel-Smith (arXiv 2603.28342):
signatures of kernels, launch grids, program ids and bounds masks stay as they are, everywhere, and
if the program marks a region with `EVOLVE-BLOCK-START` and `EVOLVE-BLOCK-END`, nothing outside of
it changes. That keeps small models from breaking a kernel, and keeps any model from re-tiling it.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum

from evolve.core.source import cpptext
from evolve.core.source.pytext import Module

_REGION = re.compile(
    r"(^[ \t]*(?:#|//)[ \t]*EVOLVE-BLOCK-START\b[^\n]*\n).*?"
    r"(^[ \t]*(?:#|//)[ \t]*EVOLVE-BLOCK-END\b)",
    re.DOTALL | re.MULTILINE,
)
_IDENTITIES = frozenset({"program_id", "num_programs"})


class EditScope(StrEnum):
    """The parts that an edit may change."""

    STRICT = "strict"
    FREE = "free"


def breach(before: str, after: str, scope: EditScope) -> str:
    """The scope that the change violates, as a phrase; empty if none. Both texts parse."""
    if scope is EditScope.FREE:
        return ""
    is_marked = _REGION.search(before) is not None
    if is_marked and _REGION.sub(r"\1\2", before) != _REGION.sub(r"\1\2", after):
        return "it changes lines outside the EVOLVE-BLOCK region"
    old, new = Counter(_fixed(Module(before))), Counter(_fixed(Module(after)))
    for what, text in old - new:
        return f"it changes {what}, which has to stay {text}"
    for what, text in new - old:
        return f"it adds {what}: {text}"
    return ""


def _fixed(module: Module) -> Iterator[tuple[str, str]]:
    """The parts that strict edits keep, with a description."""
    for node in ast.walk(module.tree):
        match node:
            case ast.FunctionDef(name=name, args=arguments):
                yield f"the signature of {name}", ast.unparse(arguments)
            case ast.Call(func=ast.Subscript(value=kernel, slice=grid)):
                yield f"the grid of {ast.unparse(kernel)}", ast.unparse(grid)
            case ast.Assign(targets=[ast.Name(id="grid")], value=value):
                yield "the grid", ast.unparse(value)
            case ast.Call(func=ast.Attribute(attr=name)) if name in _IDENTITIES:
                yield "a program id", ast.unparse(node)
            case ast.keyword(arg="mask", value=value):
                yield "a bounds mask", ast.unparse(value)
    for text in module.texts:
        if cpptext.is_code(text.value):
            for header in cpptext.functions(text.value):
                yield "the signature of a C++ function", header
