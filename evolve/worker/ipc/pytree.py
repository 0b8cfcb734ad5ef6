"""Nested outputs and inputs: flat lists of tensors, and the text that describes their nesting."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def flatten(tree: Any) -> tuple[list[Tensor], str]:
    """The tensors of a tree of tuples, lists and dicts (by sorted key), and its shape as text.

    Two trees have the same nesting exactly when their texts are equal: `T` is a tensor, `None` an
    absent one, `(..)`, `[..]` and `{key:..}` the containers.

    Raises:
        TypeError: a leaf is neither a tensor nor None; the message says where.

    >>> flatten((torch.zeros(2), [None, torch.ones(1)]))[1]
    '(T,[None,T])'
    """
    tensors: list[Tensor] = []
    return tensors, _describe(tree, "output", tensors)


def _describe(tree: Any, path: str, tensors: list[Tensor]) -> str:
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return "T"
    if tree is None:
        return "None"
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
    raise TypeError(f"{path} is a {type(tree).__name__}, not a tensor")


def unflatten(tensors: Sequence[Tensor], like: Any) -> Any:
    """The tensors in the nesting of `like` (named tuples become plain tuples)."""
    remaining = iter(tensors)
    return map_tensors(lambda _: next(remaining), like)


def map_tensors(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The tree with `function` applied to every tensor; all other leaves stay as they are."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tensors(function, tree[key]) for key in sorted(tree, key=str)}
    if isinstance(tree, list):
        return [map_tensors(function, item) for item in tree]
    if isinstance(tree, tuple):
        return tuple(map_tensors(function, item) for item in tree)
    return tree


def tensors_of(tree: Any) -> list[Tensor]:
    """Every tensor of a tree in order, with any other leaves."""
    found: list[Tensor] = []
    map_tensors(found.append, tree)
    return found


def cast_floating(tree: Any, dtype: torch.dtype) -> Any:
    """The tree with floating tensors in `dtype`; integers and booleans stay."""
    return map_tensors(
        lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, tree
    )
