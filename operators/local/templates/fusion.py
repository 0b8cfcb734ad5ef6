"""Which kernels of output code go into the tail of one of our kernels."""

import ast
from collections.abc import Mapping
from dataclasses import replace

from operators.local.inductor.forward import launch_of
from operators.local.inductor.reading import RawKernel, Statement
from operators.local.templates.calls import Replacement
from operators.local.templates.epilogue import fused, writes
from operators.local.templates.tensors import Tensors, is_view

Found = list[tuple[Statement, Replacement | None]]
_HARMLESS = ("get_raw_stream", "empty_strided", "copy_if_misaligned")
_CHECKS = ("assert_size_stride", "assert_alignment")


def fuse(
    found: Found, kernels: Mapping[str, RawKernel], tensors: Tensors, names: dict[str, str]
) -> Found:
    """The statements with kernels in tails if that can be.

    A launch with a tail stands where the kernel stood that went into it: its other operands exist
    by then. Nothing but room for results and other shapes may come between. Room for a result that
    stays in registers is not made.

    Args:
        found: statements in order, with their replacements.
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
    names = {ast.unparse(last.pointers[-1])}
    reader, freed = _reader(found, at, names)
    launch = launch_of(found[reader][0].node) if reader else None
    if launch is None or launch.kernel not in kernels:
        return
    joined = fused(last, tensors, names, kernels[launch.kernel], launch, known)
    if joined is None:
        return
    is_written = writes(joined, names)
    if not is_written and not _is_last_use(found, reader, names):
        return
    operations = (*statement.operations, *found[reader][0].operations)
    after = tuple(node for one in freed for node in _kept(*found[one]))
    for one in freed:
        found[one] = (found[one][0], Replacement())
    found[at] = (Statement(statement.node), Replacement(before=new.before))
    found[reader] = (
        Statement(found[reader][0].node, tuple(dict.fromkeys(operations))),
        Replacement(launches=(*new.launches[:-1], joined), after=after),
    )
    if not is_written:
        _forget(found, names)


def _kept(statement: Statement, new: Replacement | None) -> tuple[ast.stmt, ...]:
    return (statement.node,) if new is None else new.before


def _reader(found: Found, at: int, names: set[str]) -> tuple[int, list[int]]:
    """The statement that reads the result, 0 if there is none to fuse, and buffers freed before.

    Further names of the result, in any shape, are added to `names`.
    """
    freed: list[int] = []
    for place in range(at + 1, len(found)):
        node = found[place][0].node
        if launch_of(node) is not None:
            return (place, freed) if _mentions(node, names) else (0, [])
        match node:
            case ast.Delete():
                freed.append(place)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_view(value):
                if _is_whole(value, names):
                    names.add(name)
                elif _mentions(value, names):
                    return 0, []
            case ast.Assign(value=ast.Call(func=ast.Name(id=called))) if called.startswith(
                _HARMLESS
            ):
                continue
            case ast.Expr(value=ast.Call(func=ast.Name(id=called))) if called.startswith(_CHECKS):
                continue
            case _:
                return 0, []
    return 0, []


def _is_whole(value: ast.expr, names: set[str]) -> bool:
    """Whether a view begins where the tensor of one of the names does."""
    match value:
        case ast.Call(args=[ast.Name(id=name), _, _, ast.Constant(value=0)]):
            return name in names
    return isinstance(value, ast.Name) and value.id in names


def _is_last_use(found: Found, reader: int, names: set[str]) -> bool:
    """Whether nothing after the reader has any of the names, but to free them."""
    later = (statement.node for statement, _ in found[reader + 1 :])
    return not any(_mentions(node, names) for node in later if not isinstance(node, ast.Delete))


def _forget(found: Found, names: set[str]) -> None:
    """Remove the allocation of a tensor with any of the names, and its release."""
    for at, (statement, new) in enumerate(found):
        if new is None:
            if (left := _left(statement.node, names)) != (statement.node,):
                found[at] = (statement, Replacement(before=left))
            continue
        before, after = (
            tuple(kept for node in nodes for kept in _left(node, names))
            for nodes in (new.before, new.after)
        )
        found[at] = (statement, replace(new, before=before, after=after))


def _left(node: ast.stmt, names: set[str]) -> tuple[ast.stmt, ...]:
    """The statement if it has none of the names; of a deletion, its other names."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) if name in names:
            return ()
        case ast.Delete(targets=targets):
            others = [target for target in targets if ast.unparse(target) not in names]
            if len(others) < len(targets):
                return (ast.Delete(others),) if others else ()
    return (node,)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))
