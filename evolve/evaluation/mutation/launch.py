"""Mutants of the Python code that launches kernels: grids, strides, shapes, buffers."""

import ast
from collections.abc import Iterator, Set

from evolve.core.source.pytext import Edit, Module
from evolve.evaluation.mutation.mutant import Change, Kind
from evolve.evaluation.mutation.pytree import last_name, wrapped

_FILLED = {"zeros": ("empty", "ones"), "zeros_like": ("empty_like", "ones_like"),
           "new_zeros": ("new_empty", "new_ones")}  # fmt: skip


def launch_changes(module: Module, kernels: Set[str]) -> Iterator[Change]:
    """Changes in every function that launches one of the kernels."""
    for function in ast.walk(module.tree):
        if isinstance(function, ast.FunctionDef) and function.name not in kernels:
            launches = list(_launches(function, kernels))
            for launch in launches:
                yield from _grid(module, function, launch)
            if launches:
                for node in ast.walk(function):
                    yield from _of(module, node)


def _launches(function: ast.FunctionDef, kernels: Set[str]) -> Iterator[ast.Subscript]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Subscript(value=ast.Name(name)) as launch) if name in kernels:
                yield launch
            case _:
                continue


def _grid(module: Module, function: ast.FunctionDef, launch: ast.Subscript) -> Iterator[Change]:
    """One program too few along each axis."""
    sizes = launch.slice
    if isinstance(sizes, ast.Name):
        sizes = next((value for name, value in _assigned(function) if name == sizes.id), sizes)
    if isinstance(sizes, ast.Lambda):
        sizes = sizes.body
    if isinstance(sizes, ast.Tuple):
        for size in sizes.elts:
            yield Change(Kind.BOUNDARY, wrapped(module, size, "(", ") - 1"))


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=value):
                yield name, value
            case _:
                continue


def _of(module: Module, node: ast.AST) -> Iterator[Change]:
    match node:
        case (
            ast.Call(func=ast.Attribute(attr="stride"), args=[ast.Constant(int(axis)) as place])
            | ast.Subscript(
                value=ast.Attribute(attr="shape"), slice=ast.Constant(int(axis)) as place
            )
        ):
            yield Change(Kind.INDEXING, (_number(module, place, 1 if axis == 0 else 0),))
        case ast.Subscript(
            value=ast.Attribute(attr="shape"),
            slice=ast.UnaryOp(op=ast.USub(), operand=ast.Constant(1)) as place,
        ):
            yield Change(Kind.INDEXING, (_number(module, place, 0),))
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in _FILLED:
            _, end = module.span(function)
            for other in _FILLED[name]:
                yield Change(Kind.INITIALISATION, (Edit(end - len(name), end, other),))
        case ast.Call(func=ast.Attribute(attr="cdiv"), args=[over, by]):
            text = f"(({module.segment(over)}) // ({module.segment(by)}))"
            yield Change(Kind.BOUNDARY, (Edit(*module.span(node), text),))
        case ast.Attribute(attr="float32") if last_name(node.value) == "torch":
            yield Change(Kind.PRECISION, (Edit(*module.span(node), "torch.float16"),))
        case _:
            return


def _number(module: Module, node: ast.expr, number: int) -> Edit:
    return Edit(*module.span(node), str(number))
