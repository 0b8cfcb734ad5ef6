"""A pointwise kernel of Inductor in the tail of our kernel whose result it reads.

If it reads the result element by element, in the order of memory, its body can follow in registers:
its index becomes the place of the result in memory, its load the result itself.
"""

import ast
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from operators.local.inductor.forward import Launch as RawLaunch
from operators.local.inductor.kernels import convert_kernel, short_name
from operators.local.inductor.names import free_name
from operators.local.inductor.reading import RawKernel
from operators.local.templates import library
from operators.local.templates.axes import INDEX, MASK, Axes, images_of, inside_block
from operators.local.templates.launch import Launch
from operators.local.templates.tensors import Tensor, Tensors

_BLOCK = "XBLOCK"
_OURS = frozenset((INDEX, MASK, "xoffset", "xnumel"))  # which the tail sets itself, or not at all
_STORE = re.compile(r"\n( +)tl\.store\(out_ptr \+ offsets, value, mask\)$")
"""How most kernels of the library end, some of them in a loop."""

_RESULT = "    out_ptr,\n"
_MAX_INT32 = 2**31 - 1


def fused(
    ours: Launch,
    tensors: Tensors,
    names: Collection[str],
    raw: RawKernel,
    launch: RawLaunch,
    known: dict[str, str],
) -> Launch | None:
    """The launch with the kernel in its tail; None if that cannot be.

    Args:
        ours: writes the result, its last pointer.
        tensors: of the output code.
        names: of the result.
        raw: the kernel that reads it.
        launch: of that kernel.
        known: names of launches with tails by their text, to which a new one is added.
    """
    out = tensors[ours.pointers[-1]]
    *helpers, text = (ours.definitions or library.definitions(ours.kernel)).items()
    if raw.heuristic != "pointwise" or raw.helpers or out is None or not _is_dense(out):
        return None
    if not _STORE.search(text[1]):
        return None
    size = math.prod(out.shape)
    if _count(raw) != size:
        return None
    kernel = convert_kernel(raw, raw.function.name, {}, "")
    arguments = [launch.arguments[at] for at in kernel.positions]
    given = [at for at, argument in enumerate(arguments) if ast.unparse(argument) in names]
    (function,) = ast.parse(kernel.definitions[kernel.name]).body
    assert isinstance(function, ast.FunctionDef)
    parameters = [argument.arg for argument in function.args.args]
    if parameters[len(arguments) :] != [_BLOCK] or len(given) != 1:
        return None
    dtype = "int32" if size <= _MAX_INT32 and not _has_wide_index(raw) else "int64"
    images = images_of(ours, out)
    tail = _Tail(function.body, parameters[given[0]], Axes(images))
    if not tail.is_possible:
        return None
    stored = (arguments[at] for at, name in enumerate(parameters) if name in tail.stored)
    operands = {tensors.storage(pointer) for pointer in ours.pointers[:-1]}
    if any(tensors.storage(argument) in operands for argument in stored):
        return None  # other programs still read the memory that this one would overwrite
    kept = [at for at, name in enumerate(parameters[: len(arguments)]) if name in tail.names]
    base = f"{ours.kernel.removesuffix('_kernel')}_{short_name(raw.function.name)}"
    lines = [f"{INDEX} = offsets.to(tl.{dtype})", f"{MASK} = mask"]
    lines += images.lines(dtype) if images else []
    lines += tail.lines
    written = _with_tail(text[1], [parameters[at] for at in kept], lines)
    name = known.setdefault(written, free_name(base, known.values(), "_kernel"))
    return replace(
        ours,
        kernel=name,
        pointers=(*ours.pointers[:-1], *(arguments[at] for at in kept)),
        definitions=dict(helpers) | {name: written.replace(f"def {ours.kernel}(", f"def {name}(")},
    )


def writes(launch: Launch, names: Collection[str]) -> bool:
    """Whether a launch with a tail still has the result among its pointers, to write to it."""
    return any(ast.unparse(pointer) in names for pointer in launch.pointers)


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie side by side, in any order."""
    step = 1
    for stride, size in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _count(raw: RawKernel) -> int:
    """Of elements that a kernel works on; 0 if its body does not say."""
    for node in raw.function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="xnumel")], value=ast.Constant(value=int(size))):
                return size
    return 0


def _has_wide_index(raw: RawKernel) -> bool:
    """Whether the kernel counts in 64 bits, since something that it reads is large."""
    assigned = (node for node in raw.function.body if isinstance(node, ast.Assign))
    return any("tl.int64" in ast.unparse(n) for n in assigned if ast.unparse(n.targets[0]) in _OURS)


def _with_tail(text: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    """A kernel of the library that does not store its result, but goes on."""
    end = _STORE.search(text)
    assert end
    named = "".join(f"    {parameter},\n" for parameter in parameters)
    head = text[: end.start()].replace(_RESULT, named, 1)
    return "\n".join([head, *(f"{end[1]}{line}" for line in lines)])


class _Tail(ast.NodeTransformer):
    """The body of a pointwise kernel, for a block of any shape.

    Attributes:
        is_possible: whether it is one; the others only count then.
        lines: of the body.
        names: that it uses.
        stored: parameters that it stores to.
    """

    def __init__(self, body: Sequence[ast.stmt], result: str, axes: Axes) -> None:
        self._result = result
        self._axes = axes
        self.is_possible = True
        self.stored: set[str] = set()
        kept = [self.visit(node) for node in body if not self._is_ours(node)]
        self.lines = [line for node in kept for line in ast.unparse(node).splitlines()]
        self.names = {n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name)}
        if self.names & {_BLOCK, "xoffset", "xnumel"}:
            self.is_possible = False

    def _is_ours(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]):
                return name in _OURS
            case ast.Expr():
                return False
        self.is_possible = False
        return False

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._axes.note(name, value)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        part = self._axes.part(node)
        if part is None:
            self.generic_visit(node)
        return part or node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="load"), args=[place, mask, *_]):
                if self._is_result(place):
                    return ast.Name("value", ast.Load())
                self._require_elsewhere(place)
                inside = self._axes.mask(place, mask)
                self.is_possible = self.is_possible and inside is not None
                node.args[:2] = self._axes.declared(place), inside or mask
            case ast.Call(func=ast.Attribute(attr="store"), args=[place, _, mask, *_]):
                self.stored |= {n.id for n in ast.walk(place) if isinstance(n, ast.Name)}
                if not self._is_result(place):
                    self._require_elsewhere(place)
                    self.is_possible = self.is_possible and self._axes.is_whole(place)
                node.args[0], node.args[2] = self._axes.declared(place), inside_block(mask)
            case ast.Call(func=ast.Attribute(attr=name)) if name.startswith("atomic"):
                self.is_possible = False
        return node

    def _require_elsewhere(self, place: ast.expr) -> None:
        """Another element of the result is not there yet, or still to be read."""
        if any(isinstance(n, ast.Name) and n.id == self._result for n in ast.walk(place)):
            self.is_possible = False

    def _is_result(self, place: ast.expr) -> bool:
        """Whether it is the address of the result's element."""
        match place:
            case ast.BinOp(left=ast.Name(id=pointer), op=ast.Add(), right=ast.Name(id=index)):
                return pointer == self._result and self._axes.is_index(index)
        return False
