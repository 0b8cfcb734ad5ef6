"""Nested outputs and inputs: flat lists of tensors, and the text that describes their nesting."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

_SCALARS = (bool, int, float, str)
_MAX_TEXT = 200
_MAX_SPEC = (1 << 16) - 1  # characters; a message gives their number in 16 bits
_MAX_DEPTH = 100
_MAX_PATH = 60
_OF_OBJECTS = (  # what code of a class may raise as its object is looked at
    *(ArithmeticError, AssertionError, AttributeError, LookupError),
    *(RuntimeError, TypeError, ValueError, copy.Error),
)


_Path = str | tuple[Any, str, Any]
"""A tree's name; or the path of a container, a format and the place in it. Written in errors alone,
as outputs are walked through in timed calls."""
_ITEM, _FIELD = "[{!r}]", ".{}"


class NestingError(TypeError):
    """A tree that cannot be walked through, described or copied; the message says where and why."""


def flatten(tree: Any) -> tuple[list[Tensor], str]:
    """The tensors of a tree of tuples, lists and dicts (by sorted key), and its shape as text.

    Two trees have the same nesting exactly when their texts are equal: `T` is a tensor, `None` an
    absent one, `(..)`, `[..]` and `{key:..}` the containers; numbers and strings are as Python
    writes them, in ASCII. An object of a dataclass is the dict of its fields.

    Raises:
        NestingError: a leaf is none of these, or something is too deep or too long; the message
            says where.

    >>> flatten((torch.zeros(2), [None, torch.ones(1)]))[1]
    '(T,[None,T])'
    """
    description = _Description()
    description.add(tree, "output")
    return description.tensors, "".join(description.parts)


class _Description:
    """The tensors of a tree so far, and the parts of its text."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.parts: list[str] = []
        self._size = 0

    def add(self, tree: Any, path: _Path, depth: int = 0) -> None:
        if isinstance(tree, Tensor):
            self.tensors.append(tree)
            return self._write("T")
        if tree is None or type(tree) in _SCALARS:
            return self._write(_text(tree, path))
        if depth > _MAX_DEPTH:
            raise _too_deep(path)
        if _is_record(tree):
            tree = _fields_of(tree, path)
        if isinstance(tree, dict):
            items = [(f"{_key_text(key)}:", key, tree[key]) for key in _sorted_keys(tree, path)]
            return self._add_items("{", items, "}", path, depth)
        if isinstance(tree, tuple | list):
            items = [("", index, item) for index, item in enumerate(tree)]
            opening, closing = "[]" if isinstance(tree, list) else "()"
            return self._add_items(opening, items, closing, path, depth)
        raise NestingError(f"{_shown(path)} is of type {type(tree).__name__}, not a tensor")

    def _add_items(
        self, opening: str, items: list[tuple[str, Any, Any]], closing: str, path: _Path, depth: int
    ) -> None:
        between = opening
        for name, place, item in items:
            self._write(between + name)
            self.add(item, (path, _ITEM, place), depth + 1)
            between = ","
        self._write(closing if items else opening + closing)

    def _write(self, text: str) -> None:
        self._size += len(text)
        if self._size > _MAX_SPEC:
            raise NestingError(
                f"its nesting, with all numbers and texts, takes more than {_MAX_SPEC} characters"
            )
        self.parts.append(text)


def _text(scalar: Any, path: _Path) -> str:
    try:
        text = ascii(scalar)
    except ValueError as error:  # Python does not write integers of thousands of digits
        raise NestingError(
            f"{_shown(path)} is a number of more than {_MAX_TEXT} digits, not a tensor"
        ) from error
    if len(text) > _MAX_TEXT:
        raise NestingError(
            f"{_shown(path)} is a text of more than {_MAX_TEXT} characters, not a tensor"
        )
    return text


def _key_text(key: Any) -> str:
    return str(key).encode("ascii", "backslashreplace").decode()


def _sorted_keys(tree: dict[Any, Any], path: _Path) -> list[Any]:
    try:
        return sorted(tree, key=str)
    except _OF_OBJECTS as error:
        said = f"{_shown(path)} has a key without a text ({type(error).__name__})"
        raise NestingError(said) from error


def _too_deep(path: _Path) -> NestingError:
    return NestingError(
        f"{_shown(path)} is nested more than {_MAX_DEPTH} levels deep, or holds itself"
    )


def _shown(path: _Path) -> str:
    """The path as an expression of Python, cut where it is long."""
    steps: list[str] = []
    while not isinstance(path, str):
        path, form, place = path
        steps.append(form.format(place))
    text = path + "".join(reversed(steps))
    return text if len(text) <= _MAX_PATH else f"{text[:_MAX_PATH]}..."


def unflatten(tensors: Sequence[Tensor], like: Any) -> Any:
    """The tensors in the nesting of `like`."""
    remaining = iter(tensors)
    return map_tensors(lambda _: next(remaining), like)


def map_tensors(
    function: Callable[[Tensor], Any], tree: Any, path: _Path = "output", depth: int = 0
) -> Any:
    """The tree with `function` applied to every tensor; all other leaves stay as they are.

    Objects of dataclasses and named tuples stay such.

    Args:
        function: Takes a tensor.
        tree: A tensor, or such a tree.
        path: The tree's name in messages.
        depth: Its levels below a tree that it is part of.

    Raises:
        NestingError: something in the tree holds itself, an object of a dataclass has a field
            without a value or cannot be copied.
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if depth > _MAX_DEPTH:
        raise _too_deep(path)
    if isinstance(tree, dict):
        return {
            key: map_tensors(function, tree[key], (path, _ITEM, key), depth + 1)
            for key in _sorted_keys(tree, path)
        }
    if isinstance(tree, list):
        return _mapped_items(function, tree, path, depth)
    if isinstance(tree, tuple):
        items = _mapped_items(function, tree, path, depth)
        # A named tuple's own constructor may take other values.
        return type(tree)._make(items) if hasattr(tree, "_make") else tuple(items)
    if not _is_record(tree):
        return tree
    mapped = {
        name: map_tensors(function, value, (path, _FIELD, name), depth + 1)
        for name, value in _fields_of(tree, path).items()
    }
    return _record_with(tree, mapped, path)


def _mapped_items(
    function: Callable[[Tensor], Any], items: Sequence[Any], path: _Path, depth: int
) -> list[Any]:
    return [
        map_tensors(function, item, (path, _ITEM, index), depth + 1)
        for index, item in enumerate(items)
    ]


def _fields_of(record: Any, path: _Path) -> dict[str, Any]:
    found = {}
    for field in fields(record):
        try:
            found[field.name] = getattr(record, field.name)
        except AttributeError as error:
            at, kind = _shown((path, _FIELD, field.name)), type(record).__name__
            raise NestingError(f"{at}, a field of {kind}, has no value") from error
    return found


def _record_with(record: Any, values: dict[str, Any], path: _Path) -> Any:
    """A copy that has these values in its fields."""
    try:
        made = copy.copy(record)
        for name, value in values.items():
            object.__setattr__(made, name, value)  # it may be frozen
    except _OF_OBJECTS as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:_MAX_TEXT]
        raise NestingError(
            f"{_shown(path)}, of type {type(record).__name__}, cannot be copied ({said})"
        ) from error
    return made


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def tensors_of(tree: Any) -> list[Tensor]:
    """Every tensor of a tree in order, with any other leaves."""
    found: list[Tensor] = []
    map_tensors(found.append, tree)
    return found


def is_tensors(tree: Any) -> bool:
    """Whether a tree has tensors, one at least, and None alone in lists, tuples, plain dicts."""
    return _has_tensors_alone(tree) and bool(tensors_of(tree))


def _has_tensors_alone(tree: Any) -> bool:
    if type(tree) is dict:
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return bool(tree) and all(map(_has_tensors_alone, tree))
    return tree is None or isinstance(tree, Tensor)


def copied(tree: Any) -> Any:
    """The tree with copies of its tensors, without gradients."""
    return map_tensors(lambda tensor: tensor.detach().clone(), tree)


def resolved(tensor: Tensor) -> Tensor:
    """With values of its own where it is a conjugate or a negative that waits to be computed."""
    return tensor.resolve_conj().resolve_neg() if tensor.layout is torch.strided else tensor


SPARSE = (
    torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc
)  # fmt: skip


def components(tensor: Tensor) -> tuple[Tensor, ...]:
    """The dense tensors that a sparse one is made of; a dense one itself."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return tensor.indices(), tensor.values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in SPARSE:
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def assembled(layout: torch.layout, shape: tuple[int, ...], *parts: Tensor) -> Tensor:
    """The sparse tensor of these components; nothing is copied."""
    if layout is torch.sparse_coo:
        indices, values = parts
        return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True)
    starts, places, values = parts
    return torch.sparse_compressed_tensor(starts, places, values, shape, layout=layout)


def dense_parts(tree: Any) -> list[Tensor]:
    """The tensors of a tree, sparse ones as their components."""
    return [part for tensor in tensors_of(tree) for part in components(tensor)]


def bytes_of(tree: Any) -> int:
    """Of all tensors of a tree."""
    return sum(part.nbytes for part in dense_parts(tree))


def cast_floating(tree: Any, dtype: torch.dtype) -> Any:
    """The tree with floating tensors in `dtype`; integers and booleans stay."""
    return map_tensors(
        lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, tree
    )
