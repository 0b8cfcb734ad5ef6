"""The part of a block of results that a tail's expressions have: all, one axis, or nothing.

A convolution knows channels for rows of its block, images and places for columns. The kernels that
follow it divide the index of an element by sizes to find the same. A tail that does so takes the
existing values: a bias is read once for a row, and no element is divided.
"""

import ast
import math
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from operators.local.inductor.addresses import terms
from operators.local.templates.launch import Launch
from operators.local.templates.tensors import Tensor

INDEX, MASK = "xindex", "xmask"
"""Of the elements of a block, as Inductor calls them."""

_IMAGE, _CHANNEL, _PLACE, _WHOLE = "image", "channel", "place", "whole"
_ACROSS = frozenset((_IMAGE, _PLACE))


@dataclass(frozen=True, slots=True)
class Images:
    """A convolution's result, whose images lie one after the other, channel by channel.

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

    def lines(self, dtype: str) -> list[str]:
        """Names for rows and columns of a block; no kernel of Inductor has a name like these.

        They are made of the variables of `conv_kernel` and its like (in `kernels/`) when they store
        a block: `batch`, `depth`, `height` and `width` in the output, of shape [BLOCK_M],
        `channels` counted through all groups, of shape [BLOCK_N, 1], and the constants OUTPUT and
        BLOCK_M.
        """
        declared = f"{INDEX} = tl.max_contiguous({INDEX}, [1, BLOCK_M])"
        place = "((depth * OUTPUT[1] + height) * OUTPUT[2] + width)"
        return [
            *([declared] if self.in_rows else []),
            f"{_IMAGE} = batch.to(tl.{dtype})[None, :]",
            f"{_CHANNEL} = channels.to(tl.{dtype})",
            f"{_PLACE} = {place}.to(tl.{dtype})[None, :]",
        ]

    def divided(self, divisor: int, modulus: int) -> str:
        """The index divided, then modulo something else (0: not); empty if it has no name."""
        found = {
            (1, self.size): _PLACE,
            (self.size, self.channels): _CHANNEL,
            (self.size * self.channels, 0): _IMAGE,
            (self.size, 0): f"{_IMAGE} * {self.channels} + {_CHANNEL}",
        }
        if self.batch == 1:
            found[self.size, 0] = _CHANNEL
        return found.get((divisor, modulus), "")

    def inside(self, axes: AbstractSet[str]) -> str:
        """A mask for values with one axis of a block."""
        if _CHANNEL in axes:
            return f"({_CHANNEL} < {self.channels})"
        return f"(({_PLACE} < {self.size}) & ({_IMAGE} < {self.batch}))"


def images_of(ours: Launch, out: Tensor) -> Images | None:
    """Of a convolution's launch; None if its result is no such images, or has no places."""
    sizes = ours.constants.get("OUTPUT")
    if not ours.kernel.startswith("conv_") or not isinstance(sizes, tuple):
        return None
    batch, channels, *space = out.shape
    size = math.prod(space)
    contiguous = [math.prod(out.shape[axis + 1 :]) for axis in range(len(out.shape))]
    if list(out.stride) != contiguous or size == 1:
        return None
    places = ours.constants.get("PLACES", sizes)
    assert isinstance(places, tuple)
    return Images(batch, channels, size, places[2] > 1)


class Axes:
    """The axes that each name of a tail has.

    Args:
        images: that the block is of; of others everything that depends on the index is whole.
    """

    def __init__(self, images: Images | None) -> None:
        self._images = images
        self._known = {name: frozenset((name,)) for name in (_IMAGE, _CHANNEL, _PLACE)}
        self._known |= dict.fromkeys((INDEX, MASK, "value"), frozenset((_WHOLE,)))
        self._alike = {INDEX: INDEX, _PLACE: _PLACE}  # names that are nothing but others

    def note(self, name: str, value: ast.expr) -> None:
        """The value of a name from here on."""
        self._known[name] = self._of(value)
        if isinstance(value, ast.Name) and value.id in self._alike:
            self._alike[name] = self._alike[value.id]

    def is_index(self, name: str) -> bool:
        """Whether it is the index of an element."""
        return self._alike.get(name) == INDEX

    def part(self, node: ast.BinOp) -> ast.expr | None:
        """The convolution's value for a division of the index; None for anything else."""
        divisor, modulus = 1, 0
        match node:
            case ast.BinOp(left=inner, op=ast.Mod(), right=ast.Constant(value=int() as modulus)):
                pass
            case _:
                inner = node
        match inner:
            case ast.BinOp(
                left=ast.Name(id=name),
                op=ast.FloorDiv(),
                right=ast.Constant(value=int() as divisor),
            ):
                pass
            case ast.Name(id=name) if modulus:
                pass
            case _:
                return None
        if self._images is None or not self.is_index(name):
            return None
        text = self._images.divided(divisor, modulus)
        return ast.parse(text, mode="eval").body if text else None

    def is_whole(self, address: ast.expr) -> bool:
        """Whether it is of all elements of a block."""
        axes = self._of(address)
        return _WHOLE in axes or (_CHANNEL in axes and bool(axes & _ACROSS))

    def mask(self, address: ast.expr, mask: ast.expr) -> ast.expr | None:
        """A mask of the shape of an address; None if there is none."""
        if self.is_whole(address):
            return inside_block(mask)
        axes = self._of(address)
        others = [part for part in _conjunction(mask) if ast.unparse(part) not in (MASK, "None")]
        side = frozenset((_CHANNEL,)) if _CHANNEL in axes else _ACROSS
        if not axes or not self._images or any(self._of(part) - side for part in others):
            return None
        texts = [self._images.inside(axes), *(f"({ast.unparse(part)})" for part in others)]
        return ast.parse(" & ".join(texts), mode="eval").body

    def declared(self, address: ast.expr) -> ast.expr:
        """An address whose places lie side by side, which Triton may not see; others as they are.

        That holds if a place is added unchanged to a term of images and channels only.
        """
        match address:
            case ast.BinOp(left=ast.Name() as pointer, op=ast.Add(), right=offset):
                pass
            case _:
                return address
        added = list(terms(offset))
        others = [term for term in added if not self._is_place(term)]
        if len(others) != len(added) - 1 or any(self._of(n) - {_IMAGE, _CHANNEL} for n in others):
            return address
        if not (self._images and self._images.in_rows and self.is_whole(address)):
            return address
        text = f"tl.max_contiguous({ast.unparse(offset)}, [1, BLOCK_M])"
        return ast.BinOp(pointer, ast.Add(), ast.parse(text, mode="eval").body)

    def _is_place(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and self._alike.get(node.id) == _PLACE

    def _of(self, node: ast.expr) -> frozenset[str]:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        return frozenset().union(*(self._known[name] for name in names if name in self._known))


def inside_block(mask: ast.expr) -> ast.expr:
    """A mask that holds the block's too; Inductor leaves it out if blocks divide the size."""
    own = ast.Name(MASK, ast.Load())
    if isinstance(mask, ast.Constant):
        return own
    if any(isinstance(node, ast.Name) and node.id == MASK for node in ast.walk(mask)):
        return mask
    return ast.BinOp(mask, ast.BitAnd(), own)


def _conjunction(mask: ast.expr) -> list[ast.expr]:
    """The conditions that have to hold together."""
    match mask:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return [*_conjunction(left), *_conjunction(right)]
    return [mask]
