"""A pointwise kernel of Inductor in the tail of the kernel of ours whose result it reads.

Where it reads the result element by element, in the order of memory, its body can follow in
registers: its index becomes the place of the result in memory, its load the result itself.
"""

import ast
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from operators.inductor.addresses import terms
from operators.inductor.forward import Launch as RawLaunch
from operators.inductor.kernels import convert_kernel, short_name
from operators.inductor.reading import RawKernel
from operators.templates import library
from operators.templates.launch import Launch
from operators.templates.tensors import Tensor, Tensors

_INDEX, _MASK, _BLOCK = "xindex", "xmask", "XBLOCK"
_OURS = frozenset((_INDEX, _MASK, "xoffset", "xnumel"))  # which the tail sets itself, or not at all
_STORE = re.compile(r"\n( +)tl\.store\(out_ptr \+ offsets, value, mask\)$")
"""How most kernels of the library end, some of them in a loop."""

_RESULT = "    out_ptr,\n"
_LARGEST = 2**31 - 1


def fused(
    ours: Launch,
    tensors: Tensors,
    names: Collection[str],
    raw: RawKernel,
    launch: RawLaunch,
    known: dict[str, str],
) -> Launch | None:
    """The launch with the kernel in its tail; None where that cannot be.

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
    images = _images(ours, out)
    tail = _Tail(function.body, parameters[given[0]], images)
    if not tail.is_possible:
        return None
    stored = (arguments[at] for at, name in enumerate(parameters) if name in tail.stored)
    operands = {tensors.storage(pointer) for pointer in ours.pointers[:-1]}
    if any(tensors.storage(argument) in operands for argument in stored):
        return None  # other programs still read what this one would overwrite
    kept = [at for at, name in enumerate(parameters[: len(arguments)]) if name in tail.names]
    base = f"{ours.kernel.removesuffix('_kernel')}_{short_name(raw.function.name)}"
    index = "offsets.to(tl.int32)" if size <= _LARGEST else "offsets"
    lines = [f"{_INDEX} = {index}", f"{_MASK} = mask"]
    lines += images.lines(index) if images else []
    lines += tail.lines
    written = _with_tail(text[1], [parameters[at] for at in kept], lines)
    name = _named(base, written, known)
    return replace(
        ours,
        kernel=name,
        pointers=(*ours.pointers[:-1], *(arguments[at] for at in kept)),
        definitions=dict(helpers) | {name: written.replace(f"def {ours.kernel}(", f"def {name}(")},
    )


@dataclass(frozen=True, slots=True)
class _Images:
    """Sizes of a result of images, each channel of which lies side by side.

    Attributes:
        batch: number of images.
        channels: of an image.
        size: of a channel.
        in_rows: whether a block has places beside each other, in rows of more than one.
    """

    batch: int
    channels: int
    size: int
    in_rows: bool

    def lines(self, index: str) -> list[str]:
        """That name rows and columns of a block of a convolution."""
        as_index = ".to(tl.int32)" if index.endswith("int32)") else ""
        declared = f"{_INDEX} = tl.max_contiguous({_INDEX}, [1, BLOCK_M])"
        return [
            *([declared] if self.in_rows else []),
            f"image = batch{as_index}[None, :]",
            f"channel = (group * FILTERS + columns){as_index}[:, None]",
            "place = ((depth * OUTPUT[1] + height) * OUTPUT[2] + width)[None, :]",
        ]

    def part(self, node: ast.BinOp, index: Collection[str]) -> str:
        """What a division of the index by sizes finds; empty where it is something else."""
        match node:
            case ast.BinOp(
                left=ast.BinOp(
                    left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=self.size)
                ),
                op=ast.Mod(),
                right=ast.Constant(value=self.channels),
            ) if name in index:
                return "channel"
            case ast.BinOp(
                left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=divisor)
            ) if name in index and divisor == self.size * self.channels:
                return "image"
            case ast.BinOp(
                left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=self.size)
            ) if name in index:
                return f"image * {self.channels} + channel"
            case ast.BinOp(
                left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=self.size)
            ) if name in index:
                return "place"
        return ""

    def inside(self, parts: Collection[str]) -> str:
        """A mask for a block that has one of its axes only."""
        if "channel" in parts:
            return f"channel < {self.channels}"
        return f"(place < {self.size}) & (image < {self.batch})"


def _images(ours: Launch, out: Tensor) -> _Images | None:
    """Of a convolution's result, if no channel has one element only."""
    if not ours.kernel.startswith("conv_") or "OUTPUT" not in ours.constants:
        return None
    batch, channels, *space = out.shape
    size = math.prod(space)
    contiguous = [math.prod(out.shape[axis + 1 :]) for axis in range(len(out.shape))]
    if list(out.stride) != contiguous or size == 1 or "FILTERS" not in ours.constants:
        return None
    places = ours.constants.get("PLACES", ours.constants["OUTPUT"])
    assert isinstance(places, tuple)
    return _Images(batch, channels, size, places[2] > 1)


def _named(base: str, text: str, known: dict[str, str]) -> str:
    """A kernel's name; two of the same text have one."""
    if text not in known:
        number, name = 1, f"{base}_kernel"
        while name in known.values():
            number += 1
            name = f"{base}_{number}_kernel"
        known[text] = name
    return known[text]


def writes(launch: Launch, names: Collection[str]) -> bool:
    """Whether a launch with a tail still has the result among its pointers, to write to it."""
    return any(ast.unparse(pointer) in names for pointer in launch.pointers)


def _is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie side by side, in whatever order."""
    step = 1
    for stride, size in sorted(zip(tensor.stride, tensor.shape, strict=True)):
        if size != 1:
            if stride != step:
                return False
            step *= size
    return True


def _count(raw: RawKernel) -> int:
    """Of elements that a kernel works on; 0 where its body does not say."""
    for node in raw.function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="xnumel")], value=ast.Constant(value=int(size))):
                return size
    return 0


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

    def __init__(self, body: Sequence[ast.stmt], result: str, images: _Images | None) -> None:
        self._result = result
        self._images = images
        self._same = {_INDEX}  # names of the index
        self._parts: dict[str, set[str]] = {"image": {"image"}, "channel": {"channel"}}
        self._parts |= {"place": {"place"}}  # of a block, by names that stand for them
        self.is_possible = True
        self.stored: set[str] = set()
        kept = [self.visit(node) for node in body if not self._is_ours(node)]
        self.lines = [line for node in kept for line in ast.unparse(node).splitlines()]
        self.names = {n.id for node in kept for n in ast.walk(node) if isinstance(n, ast.Name)}
        if self.names & {_BLOCK, "xoffset", "xnumel"}:
            self.is_possible = False

    def _is_ours(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if isinstance(value, ast.Name) and value.id in self._same:
                    self._same.add(name)
                return name in _OURS
            case ast.Expr():
                return False
        self.is_possible = False
        return False

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                parts = self._parts_of(value)
                if parts and not any(isinstance(n, ast.Call) for n in ast.walk(value)):
                    self._parts[name] = parts
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        part = self._images.part(node, self._same) if self._images else ""
        if part:
            return ast.parse(part, mode="eval").body
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(attr="load"), args=[place, mask, *_]):
                if self._is_result(place):
                    return ast.Name("value", ast.Load())
                self._require_elsewhere(place)
                node.args[:2] = self._declared(place), self._inside(place, mask)
            case ast.Call(func=ast.Attribute(attr="store"), args=[place, _, mask, *_]):
                self.stored |= {n.id for n in ast.walk(place) if isinstance(n, ast.Name)}
                if not self._is_result(place):
                    self._require_elsewhere(place)
                    if self._parts_of(place) and not self._is_whole(place):
                        self.is_possible = False
                node.args[0], node.args[2] = self._declared(place), _inside(mask)
            case ast.Call(func=ast.Attribute(attr=name)) if name.startswith("atomic"):
                self.is_possible = False
        return node

    def _parts_of(self, node: ast.expr) -> set[str]:
        """Of a block that an expression is made of, if it is nothing of the whole."""
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if not self._images or names & self._same:
            return set()
        return set().union(*(self._parts[name] for name in names if name in self._parts))

    def _is_whole(self, node: ast.expr) -> bool:
        """Whether an address has both axes of a block."""
        parts = self._parts_of(node)
        return not parts or ("channel" in parts and len(parts) > 1)

    def _inside(self, place: ast.expr, mask: ast.expr) -> ast.expr:
        """A mask of an address's shape."""
        if self._is_whole(place):
            return _inside(mask)
        if not (isinstance(mask, ast.Constant) or ast.unparse(mask) == _MASK):
            self.is_possible = False
        assert self._images
        return ast.parse(self._images.inside(self._parts_of(place)), mode="eval").body

    def _declared(self, place: ast.expr) -> ast.expr:
        """An address whose places lie side by side, which Triton may not see."""
        plain = {ast.unparse(term) for term in terms(place)}
        known = {name for name in plain if self._parts.get(name) == {"place"}}
        if not (self._images and self._images.in_rows and known and self._is_whole(place)):
            return place
        assert isinstance(place, ast.BinOp)
        text = f"tl.max_contiguous({ast.unparse(place.right)}, [1, BLOCK_M])"
        return ast.BinOp(place.left, place.op, ast.parse(text, mode="eval").body)

    def _require_elsewhere(self, place: ast.expr) -> None:
        """Another element of the result is not there yet, or still to be read."""
        if any(isinstance(n, ast.Name) and n.id == self._result for n in ast.walk(place)):
            self.is_possible = False

    def _is_result(self, place: ast.expr) -> bool:
        """Whether it is the address of the result's element."""
        match place:
            case ast.BinOp(left=ast.Name(id=pointer), op=ast.Add(), right=ast.Name(id=index)):
                return pointer == self._result and index in self._same
        return False


def _inside(mask: ast.expr) -> ast.expr:
    """A mask that holds the block's too; Inductor leaves it out where blocks divide the size."""
    own = ast.Name(_MASK, ast.Load())
    if isinstance(mask, ast.Constant):
        return own
    if any(isinstance(node, ast.Name) and node.id == _MASK for node in ast.walk(mask)):
        return mask
    return ast.BinOp(mask, ast.BitAnd(), own)
