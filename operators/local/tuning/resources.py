"""The minimal needs of a program's launches, against the resources of a multiprocessor.

Left out are instances that Triton refuses, that do not fit into shared memory, or that a compiler
that wastes nothing could only run by keeping parts of a block in local memory. Of the latter some
do run: of the instances that `bench_tuner` timed on an H200 221 are left out, of which 118 run, all
at least 46 % slower than the best of their program. All is read from the program's own text: the
blocks of a launch, and in the kernel which of them live through a loop, which are multiplied and
which are ranges.
"""

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from evolve.core.errors import UsageError
from evolve.core.program import Assignment, TunableValue
from operators.local.structure.program import Launch, TritonProgram, calls, passed, stored
from operators.local.tuning.device import Limits
from operators.local.tuning.shared_tiles import Allocation, allocation

_SPILLED = 4  # times as many values as registers, and the program runs from local memory
_OPTIONS = ("num_warps", "num_stages")
_PRECISION, _ROUNDED = "INPUT_PRECISION", "fp16"

Size = tuple[str, TunableValue]
"""A constant of the module by its name, empty for a number, and its value as written."""


@dataclass(frozen=True, slots=True)
class Need:
    """The arguments of a launch.

    Attributes:
        given: constants by the kernel's parameters.
        carried: parameters that are sides of each block which lives through a loop.
        ranges: parameters that the kernel always uses in `tl.arange`.
        multiplies: whether the kernel calls `tl.dot`.
    """

    given: tuple[tuple[str, Size], ...]
    carried: tuple[tuple[str, ...], ...]
    ranges: tuple[str, ...]
    multiplies: bool

    def has_room(self, assignment: Assignment, limits: Limits) -> bool:
        """Whether the launch of an instance can have the resources it needs."""
        values = {name: assignment.get(*constant) for name, constant in self.given}
        sizes = {name: value for name, value in values.items() if type(value) is int}
        warps = sizes.get("num_warps", 4)
        if warps * limits.warp > limits.threads:
            return False
        if not all(map(_is_power, (warps, *(sizes[one] for one in self.ranges if one in sizes)))):
            return False
        registers = limits.registers * limits.warp * warps
        if self.multiplies:
            registers = max(registers, limits.sums)
            # Bytes of an element: only float32 has a choice, and may be rounded beforehand.
            width = 2 if values.get(_PRECISION, _ROUNDED) == _ROUNDED else 4
            if _tile_bytes(sizes, width) > limits.shared_memory:
                return False
        elif math.prod(size for name, size in sizes.items() if is_side(name)) > (
            _SPILLED * registers
        ):
            return False
        return sum(_elements(block, sizes) for block in self.carried) <= registers


def _is_power(size: int) -> bool:
    """Of two, as Triton wants warps and ranges."""
    return size > 0 and size & (size - 1) == 0


def _elements(block: Sequence[str], sizes: Mapping[str, int]) -> int:
    """Of a block at the least; a side that is a flag or a word here may be anything."""
    return math.prod(sizes.get(side, 1) for side in block)


def is_side(name: str) -> bool:
    """Of a block. WIDTH holds a row whole."""
    return "BLOCK" in name or name == "WIDTH"


def fits(source: str, assignment: Assignment, limits: Limits | None = None) -> bool:
    """Whether every launch of an instance of a program can have the resources it needs."""
    limits = limits or Limits()
    return all(need.has_room(assignment, limits) for need in needs(source)) and all(
        each.size(assignment) <= limits.shared_memory for each in allocated(source)
    )


@lru_cache(maxsize=16)
def allocated(source: str) -> Sequence[Allocation]:
    """Shared memory that a program's launches of kernels in Gluon allocate."""
    program = _program(source) if "allocate_shared_memory" in source else None
    if program is None:
        return ()
    functions, known = _functions(program), constants(program.module.tree)
    found = [
        allocation(functions[kernel], launch, known)
        for kernel, launch in program.all_launches
        if kernel in functions
    ]
    return [each for each in found if each.buffers]


@lru_cache(maxsize=16)  # a program is looked at for each of its instances
def needs(source: str) -> Sequence[Need]:
    """Those of a program's launches that differ."""
    return tuple(dict.fromkeys(need for need, _ in launched(source)))


def launched(source: str) -> Sequence[tuple[Need, Launch]]:
    """Every launch of a Triton program; none if the source is something else."""
    program = _program(source)
    if program is None:
        return ()
    known, functions = constants(program.module.tree), _functions(program)
    return tuple(
        (_need(functions, functions[kernel], launch, known), launch)
        for kernel, launch in program.all_launches
        if kernel in program.kernels
    )


def _program(source: str) -> TritonProgram | None:
    """None if the source is something else."""
    try:
        return TritonProgram(source)
    except UsageError:
        return None


def _functions(program: TritonProgram) -> Mapping[str, ast.FunctionDef]:
    return {
        node.name: node for node in program.module.tree.body if isinstance(node, ast.FunctionDef)
    }


def _need(
    functions: Mapping[str, ast.FunctionDef],
    kernel: ast.FunctionDef,
    launch: Launch,
    named: Mapping[str, TunableValue],
) -> Need:
    options = {k.arg: k.value for k in launch.call.keywords if k.arg in _OPTIONS}
    known = dict(_own_constants(kernel))
    for name, value in (passed(kernel, launch) | options).items():
        if (size := _size(value, named)) is not None and name is not None:
            known[name] = size
    reached = list(_reached(functions, kernel))
    carried = [_carried(function, known) for function in reached]
    inside = max(carried[1:], key=len, default=())
    return Need(
        given=tuple(known.items()),
        carried=(*carried[0], *inside),
        ranges=tuple(name for name in dict.fromkeys(_ranges(kernel)) if name in known),
        multiplies=any(called == "tl.dot" for each in reached for called, _ in calls(each)),
    )


def constants(tree: ast.Module) -> dict[str, TunableValue]:
    """Numbers and words that a module gives names to."""
    found: dict[str, TunableValue] = {}
    for node in tree.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(int() | str() as value)
            ):
                found[name] = value
    return found


def _own_constants(kernel: ast.FunctionDef) -> Iterator[tuple[str, Size]]:
    """`R0_BLOCK: tl.constexpr = 4096` in the body of a kernel."""
    for node in kernel.body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(int() as value)):
                yield name, ("", value)


def _size(value: ast.expr, named: Mapping[str, TunableValue]) -> Size | None:
    match value:
        case ast.Constant(int() | str() as number):
            return "", number
        case ast.Name(id=name) if name in named:
            return name, named[name]
    return None


def _reached(
    functions: Mapping[str, ast.FunctionDef], kernel: ast.FunctionDef
) -> Iterator[ast.FunctionDef]:
    """The kernel, then all functions that it calls, directly or not."""
    names = [kernel.name]
    for name in names:  # which grows
        yield functions[name]
        names += [
            called
            for called, _ in calls(functions[name])
            if called in functions and called not in names
        ]


def _carried(function: ast.FunctionDef, known: Mapping[str, Size]) -> tuple[tuple[str, ...], ...]:
    """Sides of the blocks that are made before a loop of the function, and assigned in it."""
    changed = {
        name
        for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While)
        for name in stored(node.body)
    }
    found = []
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[shape, *_]) as call):
                if name in changed and ast.unparse(call.func) in ("tl.zeros", "tl.full"):
                    sides = _sides(shape)
                    if set(sides) <= known.keys():
                        found.append(sides)
    return tuple(found)


def _ranges(kernel: ast.FunctionDef) -> Iterator[str]:
    """`N` of each `tl.arange(0, N)` that stands under no condition.

    Not of functions that the kernel calls: there a name may be something else.
    """
    for statement in kernel.body:
        if hasattr(statement, "body"):
            continue
        for called, call in calls(statement):
            match call.args:
                case [ast.Constant(0), ast.Name(id=name)] if called == "tl.arange":
                    yield name


def _sides(shape: ast.expr) -> tuple[str, ...]:
    """Names of a shape; ones are left out, and a shape of something else has a side of no name."""
    elements = shape.elts if isinstance(shape, ast.List | ast.Tuple) else [shape]
    return tuple(
        side.id if isinstance(side, ast.Name) else ""
        for side in elements
        if ast.unparse(side) != "1"
    )


def _tile_bytes(sizes: Mapping[str, int], width: int) -> int:
    """Of the operands of products that have to lie in shared memory at once."""
    if not {"BLOCK_M", "BLOCK_N", "BLOCK_K"} <= sizes.keys():
        return 0
    operands = (sizes["BLOCK_M"] + sizes["BLOCK_N"]) * sizes["BLOCK_K"] * width
    if "WIDTH" in sizes:  # attention: scores, then a product of them with values
        return max(operands, sizes["BLOCK_N"] * sizes["WIDTH"] * width)
    return operands * max(sizes.get("num_stages", 3) - 1, 1)
