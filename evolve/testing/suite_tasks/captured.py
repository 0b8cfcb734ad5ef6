"""Arguments of recorded calls: their description in a captured task's file, drawn anew.

A description is plain data that `ast.literal_eval` reads. A tensor is a dict with the key `tensor`
(its shape), `dtype`, `stride` unless it is contiguous, and one of

- `file`: the values of the call, in a file beside the task's;
- `constant`: all values;
- `share`: of the true ones of a boolean tensor;
- `low` and `high`: bounds of integers, both included;
- these, `mean` and `std`: normal numbers between bounds.

A dict of the user's is `{"dict": {...}}`; values that no literal gives are `{"torch": "float16"}`,
and `{"float": "inf"}`.
"""

from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evolve.core.errors import FAILURES_OF_A_FUNCTION


def drawn(names: MutableMapping[str, Any], described: Any) -> Any:
    """Arguments as described, from torch's generator.

    Args:
        names: of the task's module, beside whose file the values of some tensors lie.
        described: see above; lists and tuples of descriptions too.
    """
    if isinstance(described, dict):
        if "tensor" in described:
            return _tensor(described, Path(names["__file__"]).parent)
        if "torch" in described:
            return getattr(torch, described["torch"])
        if "float" in described:
            return float(described["float"])
        return {key: drawn(names, value) for key, value in described["dict"].items()}
    if isinstance(described, list | tuple):
        return type(described)(drawn(names, value) for value in described)
    return described


def key_of(tree: Any) -> Any:
    """Equal for calls that differ in the values of tensors only; hashable.

    It raises nothing: what has no shape, or fails when it is looked at, is `other`.
    """
    try:
        return _key_of(tree)
    except FAILURES_OF_A_FUNCTION:
        return "other", type(tree).__qualname__


def _key_of(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.dtype, tuple(tree.shape), tree.stride()
    if isinstance(tree, list | tuple):
        return type(tree).__name__, *map(key_of, tree)
    if isinstance(tree, dict):
        return "dict", *((_plain(key), key_of(value)) for key, value in tree.items())
    if isinstance(tree, bool | int | float | str | bytes | torch.dtype) or tree is None:
        return type(tree).__name__, tree
    return "object", type(tree).__qualname__


def _plain(key: Any) -> Any:
    """A key of a dict, if its text is the same in every process."""
    is_plain = key is None or isinstance(key, bool | int | float | str | bytes | tuple)
    return key if is_plain else ("object", type(key).__qualname__)


def key_of_described(described: Any) -> Any:
    """The `key_of` of arguments so described."""
    if isinstance(described, dict):
        if "tensor" in described:
            shape = tuple(described["tensor"])
            stride = tuple(described.get("stride", _contiguous(shape)))
            return getattr(torch, described["dtype"]), shape, stride
        if "torch" in described:
            return key_of(getattr(torch, described["torch"]))
        if "float" in described:
            return key_of(float(described["float"]))
        return "dict", *((k, key_of_described(v)) for k, v in described["dict"].items())
    if isinstance(described, list | tuple):
        return type(described).__name__, *map(key_of_described, described)
    return key_of(described)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return torch.empty(shape, device="meta").stride()


def _tensor(described: dict[str, Any], folder: Path) -> Tensor:
    shape = tuple(described["tensor"])
    dtype = getattr(torch, described["dtype"])
    if "file" in described:
        values = torch.load(folder / described["file"], weights_only=True)
        values = values.to(torch.get_default_device())
    else:
        values = _values(described, shape, dtype)
    return values if "stride" not in described else _laid_out(values, described["stride"])


def _values(described: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    if "constant" in described:
        return torch.full(shape, drawn({}, described["constant"]), dtype=dtype)
    if "share" in described:
        return torch.rand(shape) < described["share"]
    low, high = described["low"], described["high"]
    if "mean" not in described:
        return torch.randint(low, high + 1, shape, dtype=dtype)
    drawn_in = torch.float64 if dtype == torch.float64 else torch.float32
    normal = torch.randn(shape, dtype=drawn_in).mul_(described["std"]).add_(described["mean"])
    return normal.clamp_(low, high).to(dtype)


def _laid_out(values: Tensor, stride: tuple[int, ...]) -> Tensor:
    """The values in memory of these strides; elements that share memory are equal."""
    sizes = zip(values.shape, stride, strict=True)
    length = 1 + sum((size - 1) * step for size, step in sizes) if values.numel() else 0
    memory = values.new_zeros(length)
    laid_out = memory.as_strided(values.shape, stride)
    # An expanded dimension repeats its first element.
    first = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
    laid_out[first].copy_(values[first])
    return laid_out


def with_attributes(kind: type, attributes: dict[str, Any]) -> Any:
    """An object of a class with these attributes, made without the class's own code."""
    thing: Any = object.__new__(kind)
    thing.__dict__.update(attributes)
    return thing
