"""Shared memory that kernels in Gluon allocate, from their own text.

Gluon allocates nothing by itself: a kernel names each buffer with its shape. So what a launch takes
is known beforehand where shapes are made of the kernel's constants and of the blocks of the
descriptors (`tiles_of`) that it is given.
"""

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolve.core.program import Assignment, TunableValue
from operators.local.structure.program import Launch, calls, passed

_BARRIER_BYTES, _ELEMENT_BYTES = 8, 2  # tiles that are read for products have 16 bits

Values = Mapping[str, TunableValue | None]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One that a kernel allocates.

    Attributes:
        sides: of its shape, by the kernel's names.
        block: further sides, by the program's names.
        width: bytes of an element.
    """

    sides: Sequence[ast.expr]
    block: Sequence[ast.expr]
    width: int

    def size(self, inside: Values, outside: Values) -> int:
        """Bytes; 0 if a side is not known."""
        sides = [_value(side, inside) for side in self.sides]
        sides += [_value(side, outside) for side in self.block]
        known = [side for side in sides if type(side) is int]
        return self.width * math.prod(known) if len(known) == len(sides) else 0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The buffers of one launch.

    Attributes:
        buffers: of the kernel.
        given: the program's expressions by the kernel's parameters.
        named: constants of the program.
    """

    buffers: Sequence[Buffer]
    given: Mapping[str, ast.expr]
    named: Mapping[str, TunableValue]

    def size(self, assignment: Assignment) -> int:
        """Bytes of an instance, at the least."""
        outside = {**self.named, **assignment}
        inside = {name: _value(given, outside) for name, given in self.given.items()}
        return sum(buffer.size(inside, outside) for buffer in self.buffers)


def allocation(
    kernel: ast.FunctionDef, launch: Launch, named: Mapping[str, TunableValue]
) -> Allocation:
    """Of a launch in a program with such constants."""
    given = passed(kernel, launch)
    return Allocation(tuple(_buffers(kernel, given)), given, named)


def _buffers(kernel: ast.FunctionDef, given: Mapping[str, ast.expr]) -> Iterator[Buffer]:
    for called, call in calls(kernel):
        if called != "gl.allocate_shared_memory":
            continue
        match call.args:
            case [kind, ast.List(elts=sides), *_] if ast.unparse(kind) == "gl.int64":
                yield Buffer(sides, (), _BARRIER_BYTES)
            case [_, ast.BinOp(left=ast.List(elts=sides), right=block), *_]:
                descriptor = given.get(ast.unparse(block).removesuffix(".block_type.shape"))
                match descriptor:
                    case ast.Call(
                        func=ast.Name(id="tiles_of"), args=[_, _, _, ast.Tuple(elts=tile)]
                    ):
                        yield Buffer(sides, tile, _ELEMENT_BYTES)


def _value(node: ast.expr, values: Values) -> TunableValue | None:
    """Of a number, a word, a name, a product, or an element of a table; None of anything else."""
    match node:
        case ast.Constant(value=int() | str() as value):
            return value
        case ast.Name(id=name):
            return values.get(name)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _value(left, values), _value(right, values)
            return one * other if isinstance(one, int) and isinstance(other, int) else None
        case ast.Subscript(value=ast.Dict(keys=words, values=elements), slice=word):
            wanted = _value(word, values)
            for each, element in zip(words, elements, strict=True):
                if isinstance(each, ast.Constant) and each.value == wanted:
                    return _value(element, values)
    return None
