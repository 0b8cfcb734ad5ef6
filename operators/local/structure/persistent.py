"""A grid of a chosen number of programs, each of which takes tile after tile."""

import ast
from collections import Counter
from collections.abc import Iterator

from operators.local.structure.program import (
    Choices,
    Launch,
    NotApplicable,
    TritonProgram,
    calls,
    names,
    parameters,
    parse,
    passed,
    stored,
)

_PER_MULTIPROCESSOR = (1, 2, 4, 8, 16)
_FIRST = 4
_TILES = "tiles"
_HOISTED = frozenset(("tl.arange", "tl.full", "tl.zeros", "tl.broadcast_to", "tl.cdiv"))


def persistent_grid(program: TritonProgram, name: str) -> str:
    """Launch fewer programs, and have each take every `tl.num_programs(0)`-th tile.

    Values that do not depend on the tile are computed once for all of a program's tiles; so are
    loads from the module's own parameters, which no kernel of a forward pass writes to.
    """
    kernel, launches = program.kernel(name), program.launches(name)
    _require_one_axis(kernel, launches)
    if changed := set(stored(kernel.body)) & set(parameters(kernel)):
        raise NotApplicable(f"it changes {', '.join(sorted(changed))}, which the next tile reads")
    tile = _free("tile", kernel)
    count = _free(_TILES, kernel)
    constants = _constant_pointers(kernel, launches)
    before, inside = _split(kernel.body, constants, set(parameters(kernel)) - constants)
    number = _free("number", kernel)
    loop = parse(
        f"for {number} in tl.range(tl.program_id(0), {count}, tl.num_programs(0)):\n"
        # the interpreter counts in plain numbers, which have no methods
        f"    {tile} = tl.cast({number}, tl.int32)"
    )
    assert isinstance(loop, ast.For)
    loop.body += [_Renumbered(tile).visit(node) for node in inside]
    kernel.body = [*before, loop]
    kernel.args.args.append(ast.arg(count))
    constant = program.free(f"{name.removesuffix('_kernel').upper()}_PROGRAMS")
    edits = [program.replaced_kernel(kernel)]
    for launch in launches:
        (tiles,) = launch.counts
        grid = ast.parse(f"(min({constant}, {ast.unparse(tiles)}),)", mode="eval").body
        function = ast.Subscript(ast.Name(name), grid)
        options = [*launch.call.keywords, ast.keyword(count, tiles)]
        edits.append(program.replaced_call(launch, ast.Call(function, launch.call.args, options)))
    numbers = tuple(program.multiprocessors * count for count in _PER_MULTIPROCESSOR)
    return program.written(edits, {constant: Choices(_FIRST * program.multiprocessors, numbers)})


def _require_one_axis(kernel: ast.FunctionDef, launches: list[Launch]) -> None:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Return | ast.While):
            raise NotApplicable("the kernel returns early, or has a loop without bounds")
    for called, call in calls(kernel):
        if called == "tl.num_programs":
            raise NotApplicable("the kernel counts its programs already")
        if called == "tl.program_id" and [ast.unparse(a) for a in call.args] != ["0"]:
            raise NotApplicable("the grid has more than one axis")
    for launch in launches:
        others = [ast.unparse(count) for count in launch.counts[1:]]
        if any(count != "1" for count in others) or len(launch.counts) != 1:
            raise NotApplicable("the grid has more than one axis")
    if not any(called == "tl.program_id" for called, _ in calls(kernel)):
        raise NotApplicable("the kernel does not ask which program it is")


def _constant_pointers(kernel: ast.FunctionDef, launches: list[Launch]) -> set[str]:
    """Parameters for which all launches pass something of `self`, and that are not stored to."""
    written = {
        name for called, call in calls(kernel) if called != "tl.load" for name in names(call)
    }
    found = set(passed(kernel, launches[0])) - written
    for launch in launches:
        given = passed(kernel, launch)
        found &= {p for p in found if ast.unparse(given[p]).startswith("self.")}
    return found


def _split(
    body: list[ast.stmt], constants: set[str], others: set[str]
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Statements that are the same for every tile, and the others, both in order.

    Args:
        body: of the kernel.
        constants: parameters of which loads may be moved.
        others: all other parameters.
    """
    times = Counter(stored(body))
    varying: set[str] = set()
    before, inside = [], []
    for node in body:
        if _is_fixed(node, constants, others) and not names(node) & varying and _once(node, times):
            before.append(node)
        else:
            varying |= set(stored([node]))
            inside.append(node)
    return before, inside


def _once(node: ast.stmt, times: Counter[str]) -> bool:
    return all(times[name] == 1 for name in stored([node]))


def _is_fixed(node: ast.stmt, constants: set[str], others: set[str]) -> bool:
    """Whether a statement gives the same wherever it stands, tiles apart."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # documentation
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    for called, call in calls(node):
        if called == "tl.load":
            pointers = names(call.args[0])
            if not pointers & constants or pointers & others:
                return False
        elif called not in _HOISTED:
            return False
    return True


class _Renumbered(ast.NodeTransformer):
    """The tile in the place of the program's number."""

    def __init__(self, tile: str) -> None:
        self._tile = tile

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node.func) == "tl.program_id":
            return ast.Name(self._tile, ast.Load())
        self.generic_visit(node)
        return node


def _free(wanted: str, kernel: ast.FunctionDef) -> str:
    taken = set(_all_names(kernel))
    return next(name for name in (wanted + "_" * k for k in range(99)) if name not in taken)


def _all_names(kernel: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(kernel):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
