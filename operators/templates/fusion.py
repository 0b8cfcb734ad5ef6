"""Which kernels of output code go into the tail of a kernel of ours."""

import ast
from collections.abc import Mapping
from dataclasses import replace

from operators.inductor.forward import launch_of
from operators.inductor.reading import RawKernel, Statement
from operators.templates.calls import Replacement
from operators.templates.epilogue import fused, writes
from operators.templates.tensors import Tensors

Found = list[tuple[Statement, Replacement | None]]
_HARMLESS = ("get_raw_stream", "empty_strided", "reinterpret_tensor")
_CHECKS = ("assert_size_stride", "assert_alignment")


def fuse(
    found: Found, kernels: Mapping[str, RawKernel], tensors: Tensors, names: dict[str, str]
) -> Found:
    """The statements with kernels in tails where that can be.

    A launch with a tail stands where the kernel stood that went into it: what else that reads is
    there by then. Nothing but room for results may come between.

    Args:
        found: statements in order, with what replaces them.
        kernels: of the output code.
        tensors: of the output code.
        names: of launches with tails by their text, to which those that are new are added.
    """
    result = list(found)
    for at, (_, new) in enumerate(found):
        if new is not None and new.launches:
            _fuse_one(result, at, kernels, tensors, names)
    return result


def _fuse_one(
    found: Found,
    at: int,
    kernels: Mapping[str, RawKernel],
    tensors: Tensors,
    known: dict[str, str],
) -> None:
    statement, new = found[at]
    assert new is not None
    *_, last = new.launches
    out = tensors[last.pointers[-1]]
    names = {ast.unparse(last.pointers[-1])}
    reader, freed = _reader(found, at, names)
    launch = launch_of(found[reader][0].node) if reader else None
    if out is None or launch is None or launch.kernel not in kernels:
        return
    joined = fused(last, out, names, kernels[launch.kernel], launch, known)
    if joined is None or not (writes(joined, names) or _is_last_use(found, reader, names)):
        return
    operations = (*statement.operations, *found[reader][0].operations)
    after = tuple(node for one in freed for node in _kept(*found[one]))
    found[reader] = (
        Statement(found[reader][0].node, tuple(dict.fromkeys(operations))),
        replace(new, launches=(*new.launches[:-1], joined), after=after),
    )
    for one in (at, *freed):
        found[one] = (found[one][0], Replacement())


def _kept(statement: Statement, new: Replacement | None) -> tuple[ast.stmt, ...]:
    return (statement.node,) if new is None else new.before


def _reader(found: Found, at: int, names: set[str]) -> tuple[int, list[int]]:
    """The statement that reads the result, 0 where there is none to fuse, and what is freed before.

    Further names of the result are added to `names`.
    """
    freed: list[int] = []
    for place in range(at + 1, len(found)):
        node = found[place][0].node
        if launch_of(node) is not None:
            return (place, freed) if _mentions(node, names) else (0, [])
        match node:
            case ast.Delete():
                freed.append(place)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=old)) if old in names:
                names.add(name)
            case ast.Assign(value=ast.Call(func=ast.Name(id=called)) as call) if called.startswith(
                _HARMLESS
            ) and not _mentions(call, names):
                continue
            case ast.Expr(value=ast.Call(func=ast.Name(id=called))) if called.startswith(_CHECKS):
                continue
            case _:
                return 0, []
    return 0, []


def _is_last_use(found: Found, reader: int, names: set[str]) -> bool:
    """Whether nothing after the reader has any of the names, but to free them."""
    later = (statement.node for statement, _ in found[reader + 1 :])
    return not any(_mentions(node, names) for node in later if not isinstance(node, ast.Delete))


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))
