"""A task's file for use without us: its source with the judged size written into it."""

import ast
from collections.abc import Iterator, Mapping

from evolve.core.source.pytext import Edit, Module, apply, read
from evolve.core.source.scopes import assigned_names

Constants = Mapping[str, int | float | str]


def with_constants(source: str, constants: Constants) -> str:
    r"""The source with module constants replaced where it assigns them.

    >>> print(with_constants("N = 4  # rows\nA, B = N, 2", {"N": 8, "B": 3}))
    N = 8  # rows
    A, B = N, 2
    B = 3
    """
    module = read(source)
    edits = [edit for node in module.tree.body for edit in _edits(module, node, constants)]
    return apply(source, edits)


def _edits(module: Module, statement: ast.stmt, constants: Constants) -> Iterator[Edit]:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in constants:
            yield Edit(*module.span(value), repr(constants[name]))
        case _:
            _, end = module.span(statement)
            for name in sorted(assigned_names([statement]) & constants.keys()):
                yield Edit(end, end, f"\n{name} = {constants[name]!r}")
