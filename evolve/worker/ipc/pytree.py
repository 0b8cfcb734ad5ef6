"""Nested outputs and inputs: flat lists of tensors, and the text that describes their nesting."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

_SCALARS = (bool, int, float, str)
_MAX_TEXT = 200


def flatten(tree: Any) -> tuple[list[Tensor], str]:
    """The tensors of a tree of tuples, lists and dicts (by sorted key), and its shape as text.

    Two trees have the same nesting exactly when their texts are equal: `T` is a tensor, `None` an
    absent one, `(..)`, `[..]` and `{key:..}` the containers; numbers and strings are as Python
    writes them. An object of a dataclass is the dict of its fields.

    Raises:
        TypeError: a leaf is none of these; the message says where.

    >>> flatten((torch.zeros(2), [None, torch.ones(1)]))[1]
    '(T,[None,T])'
    """
    tensors: list[Tensor] = []
    return tensors, _describe(tree, "output", tensors)


def _describe(tree: Any, path: str, tensors: list[Tensor]) -> str:
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return "T"
    if tree is None or type(tree) in _SCALARS:
        return _text(tree, path)
    if _is_record(tree):
        tree = {field.name: getattr(tree, field.name) for field in fields(tree)}
    if isinstance(tree, dict):
        parts = [
            f"{key}:{_describe(tree[key], f'{path}[{key!r}]', tensors)}"
            for key in sorted(tree, key=str)
        ]
        return "{" + ",".join(parts) + "}"
    if isinstance(tree, tuple | list):
        inner = ",".join(
            _describe(item, f"{path}[{index}]", tensors) for index, item in enumerate(tree)
        )
        return f"[{inner}]" if isinstance(tree, list) else f"({inner})"
    raise TypeError(f"{path} is of type {type(tree).__name__}, not a tensor")


def _text(scalar: Any, path: str) -> str:
    text = repr(scalar)
    if len(text) > _MAX_TEXT:
        raise TypeError(f"{path} is a text of more than {_MAX_TEXT} characters, not a tensor")
    return text


def unflatten(tensors: Sequence[Tensor], like: Any) -> Any:
    """The tensors in the nesting of `like`."""
    remaining = iter(tensors)
    return map_tensors(lambda _: next(remaining), like)


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with `function` applied to every tensor; all other leaves stay as they are.

    Objects of dataclasses and named tuples stay such.
    """
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tensors(function, tree[key]) for key in sorted(tree, key=str)}
    if isinstance(tree, list):
        return [map_tensors(function, item) for item in tree]
    if isinstance(tree, tuple):
        items = [map_tensors(function, item) for item in tree]
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if _is_record(tree):
        made = copy.copy(tree)
        for field in fields(tree):
            value = map_tensors(function, getattr(tree, field.name))
            object.__setattr__(made, field.name, value)  # it may be frozen
        return made
    return tree


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
