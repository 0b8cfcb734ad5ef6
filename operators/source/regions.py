"""Spans of a program that an optimisation can be applied to, found by its syntax and data flow."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from evolve.core.source import cpptext
from evolve.core.source.pytext import Module, Text

KINDS = ("module", "kernel", "loop", "reduction", "product", "launch", "pair")
"""`kernel` is a Triton or C++ function with a loop or a memory access, `reduction` and `product` a
statement with one, `launch` a call of a kernel, `pair` two statements or loops that follow each
other, of which the second reads what the first writes."""

_MAX_FUNCTIONS = 64  # of a C++ text, and
_MAX_LOOPS = 64  # of one of them: no program that is worth it has more
_PRAGMA = 120  # characters before a loop that may hold its directive
_MAX_HEADER = 500  # characters of a function's header in which its name is looked for

_CPP_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_CPP_NAME = re.compile(r"([A-Za-z_]\w*)\s*\([^()]*(?:\([^()]*\)[^()]*)*\)[^()]*$")
# Assigned names, except declarations (a type stands before the name): those are local.
_CPP_WRITTEN = re.compile(
    r"(?<![\w*&>] )(?<![*&])\b([A-Za-z_]\w*)\s*(?:\[[^;]*?\]\s*)?[-+*/|&^]?=(?!=)"
)
_REDUCTIONS = frozenset({"sum", "max", "min", "reduce", "argmax", "argmin", "cumsum",
                         "associative_scan"})  # fmt: skip
_ACCESSES = frozenset({"load", "store", "program_id"})


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `first` to `last` of a program, counted from 1, in the definition called `name`."""

    kind: str
    name: str
    first: int
    last: int

    def __str__(self) -> str:
        if self.kind == "module":
            return "the whole module"
        lines = f"lines {self.first} to {self.last}"
        where = f"line {self.first}" if self.first == self.last else lines
        return f"the {self.kind} in {self.name}, {where}"


def find_regions(source: str) -> list[Region]:
    """The regions of a program in order of their lines, each once."""
    module = Module(source)
    found = {Region("module", "the module", 1, source.count("\n") + 1): None}
    for function in _functions(module.tree):
        found |= dict.fromkeys(_python(function))
    for text in module.texts:
        if cpptext.is_code(text.value):
            found |= dict.fromkeys(_cpp(module, text))
    return sorted(found, key=lambda region: (region.first, region.last, KINDS.index(region.kind)))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions of the module and methods of its classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from (part for part in node.body if isinstance(part, ast.FunctionDef))


def _python(function: ast.FunctionDef) -> Iterator[Region]:
    called = {_called(node) for node in ast.walk(function) if isinstance(node, ast.Call)}
    if called & _ACCESSES:
        yield _region("kernel", function.name, function)
        yield from _in_kernel(function)
    for body in _bodies(function):
        for before, after in pairwise(body):
            if _calls(before) and _calls(after) and _written(before) & _read(after):
                yield Region("pair", function.name, before.lineno, after.end_lineno or after.lineno)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            yield _region("launch", function.name, node)


def _in_kernel(function: ast.FunctionDef) -> Iterator[Region]:
    for node in ast.walk(function):
        if isinstance(node, (ast.For, ast.While)):
            yield _region("loop", function.name, node)
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.Return)):
            names = {_called(part) for part in ast.walk(node) if isinstance(part, ast.Call)}
            if names & _REDUCTIONS:
                yield _region("reduction", function.name, node)
            if "dot" in names:
                yield _region("product", function.name, node)


def _region(kind: str, name: str, node: ast.stmt | ast.expr) -> Region:
    return Region(kind, name, node.lineno, node.end_lineno or node.lineno)


def _bodies(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield [part for part in body if isinstance(part, ast.stmt)]


def _called(call: ast.Call) -> str:
    """The last name of a called expression: `load` of `tl.load(...)`."""
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def _calls(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Call) for node in ast.walk(statement))


def _written(statement: ast.stmt) -> set[str]:
    """Names that a statement binds, or hands to a call whose value it drops: that may fill them."""
    names = {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        names |= {node.id for node in statement.value.args if isinstance(node, ast.Name)}
    return names


def _read(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _cpp(module: Module, text: Text) -> Iterator[Region]:
    for function in islice(cpptext.functions(text.value).values(), _MAX_FUNCTIONS):
        title = _CPP_NAME.search(function.header[-_MAX_HEADER:])
        name = title[1] if title else "C++"
        code = cpptext.mask(text.value[function.start : function.end])
        for kind, start, end in _cpp_spans(code):
            first = _line(module, text, function.start + start)
            yield Region(kind, name, first, _line(module, text, function.start + end))


def _cpp_spans(code: str) -> Iterator[tuple[str, int, int]]:
    """Kind, first and last offset of the regions in a masked C++ function with a loop."""
    loops = list(_loops(code))
    if loops:
        yield "kernel", 0, len(code) - 1
    for start, end in loops:
        yield "loop", start, end
        if "+=" in code[start:end] or "reduction" in code[max(start - _PRAGMA, 0) : start]:
            yield "reduction", start, end
    for (start, end), (then, last) in _adjacent(code, loops):
        if set(_CPP_WRITTEN.findall(code[start:end])) & cpptext.names(code[then:last]):
            yield "pair", start, last


def _line(module: Module, text: Text, offset: int) -> int:
    """The module's line on which a character of a string's value is written."""
    return module.source.count("\n", 0, text.offsets[offset]) + 1


def _loops(code: str) -> Iterator[tuple[int, int]]:
    """Where loops begin and end in masked C++ code."""
    for match in islice(_CPP_LOOP.finditer(code), _MAX_LOOPS):
        head = _balanced(code, match.end() - 1, "()")
        body = code.find("{", head)
        end = code.find(";", head)
        if body != -1 and (end == -1 or body < end) and not code[head:body].strip():
            end = _balanced(code, body, "{}")
        if end > 0:
            yield match.start(), min(end, len(code) - 1)


def _balanced(code: str, start: int, pair: str) -> int:
    """The offset after the bracket that closes the one at `start`."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(code, start):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.end()
    return len(code)


def _adjacent(
    code: str, loops: Iterable[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Loops between which no other loop begins or ends, and no block opens or closes."""
    for one, other in pairwise(sorted(loops)):
        if one[1] <= other[0] and not {"{", "}"} & {*code[one[1] : other[0]]}:
            yield one, other
