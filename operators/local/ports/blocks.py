"""Blocks of the compiler's kernels: their sizes, and the order of their elements."""

import ast
from collections.abc import Iterator

from operators.local.inductor import NotConvertible
from operators.local.inductor.addresses import OF_REDUCTION, terms


def sizes_of(kernel: ast.FunctionDef) -> tuple[str, ...]:
    """Sizes of a kernel's block, by axis; none of a function that gets its blocks.

    Raises:
        NotConvertible: it has more than two axes, or blocks of several sizes.
    """
    found: dict[int, str] = {}
    for made in ast.walk(kernel):
        if (axis := axis_of(made)) is not None:
            assert isinstance(made, ast.Subscript)
            assert isinstance(made.value, ast.Call)
            size = ast.unparse(made.value.args[1])
            if found.setdefault(axis, size) != size:
                raise NotConvertible(f"{kernel.name} has blocks of several sizes")
    if sorted(found) == [1]:  # a kernel that sums everything has a single row
        found[0] = "XBLOCK"
    return tuple(found[axis] for axis in sorted(found))


def axis_of(node: ast.AST) -> int | None:
    """The axis of `tl.arange(0, N)[:, None]`; 0 if it is the only one, None of anything else."""
    match node:
        case ast.Subscript(value=ast.Call(func=ast.Attribute(attr="arange")), slice=place):
            match place:
                case ast.Slice() | ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None)]):
                    return 0
                case ast.Tuple(elts=[ast.Constant(value=None), ast.Slice()]):
                    return 1
            raise NotConvertible(f"a range along {ast.unparse(place)}")
    return None


def lie_in_rows(kernel: ast.FunctionDef) -> bool:
    """Whether elements of the second axis lie side by side in memory, not those of the first."""
    reduced = any(OF_REDUCTION.search(name) for name in names_in(kernel))
    return any(_is_beside(address, reduced) for address in _addresses(kernel))


def _is_beside(address: ast.expr, reduced: bool) -> bool:
    """Whether an address has a term of the second axis that nothing multiplies."""
    plain = [term.id for term in terms(address) if isinstance(term, ast.Name)]
    if reduced:
        return any(OF_REDUCTION.search(name) for name in plain)
    return any(name.startswith("x") for name in plain)


def _addresses(kernel: ast.FunctionDef) -> Iterator[ast.expr]:
    for call in ast.walk(kernel):
        match call:
            case ast.Call(
                func=ast.Attribute(attr="load" | "store"),
                args=[ast.BinOp(left=ast.Name(), op=ast.Add(), right=offset), *_],
            ):
                yield offset


def names_in(node: ast.AST) -> set[str]:
    """Names that a text has."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def is_column(node: ast.AST) -> bool:
    """Whether it is `something[:, None]`, which follows a reduction."""
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=[ast.Slice(), ast.Constant(value=None)])):
            return True
    return False


def is_whole_block(node: ast.AST) -> bool:
    """Whether it is `tl.full([XBLOCK, R0_BLOCK], ...)` or the like."""
    match node:
        case ast.Call(func=ast.Attribute(attr="full" | "zeros"), args=[ast.List(elts=sizes), *_]):
            return not any(isinstance(size, ast.Constant) for size in sizes)
    return False
