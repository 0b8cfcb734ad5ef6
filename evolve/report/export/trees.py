"""Arguments and outcomes of a reference as Python text: literals, and ways into a nesting."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from evolve.core.errors import UsageError

REMEDY = "`--as module` exports any winner"


def refusal(what: str) -> UsageError:
    """Why a winner cannot be an operator, and the alternative."""
    return UsageError(f"--as torch-op: {what}; {REMEDY}")


def literal(value: Any, where: str) -> str:
    """A plain value as Python text.

    Raises:
        UsageError: it is a tensor or an object; `where` says whose.

    >>> print(literal([1, (2.5,), {"a": torch.float32}], "x"))
    [1, (2.5,), {"a": torch.float32}]
    """
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if value is None or type(value) in (bool, int, float):
        return repr(value)
    if type(value) is str:
        return _quoted(value)
    if isinstance(value, torch.dtype):
        return str(value)
    if type(value) in (list, tuple, torch.Size):
        return _sequence([literal(item, where) for item in value], value)
    if type(value) is dict:
        pairs = (f"{literal(k, where)}: {literal(v, where)}" for k, v in value.items())
        return "{" + ", ".join(pairs) + "}"
    kind = "tensor" if isinstance(value, Tensor) else type(value).__name__
    raise refusal(f"{where} is a {kind}, which has no plain text")


def _quoted(text: str) -> str:
    """The string in double quotes if nothing in it has to be escaped for that."""
    written = repr(text)
    return written if '"' in written else f'"{written[1:-1]}"'


def _sequence(parts: Sequence[str], like: Any) -> str:
    if isinstance(like, list):
        return f"[{', '.join(parts)}]"
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def tensor_text(tensor: Tensor, where: str) -> str:
    """The tensor's metadata as a `Like(...)` of the exported file; it has a stride if needed.

    Raises:
        UsageError: it is sparse, or elements of it share a place in memory.
    """
    if tensor.layout is not torch.strided:
        raise refusal(f"{where} is a {tensor.layout} tensor")
    shape = literal(tuple(tensor.shape), where)
    if tensor.is_contiguous():
        return f"Like({tensor.dtype}, {shape})"
    if _overlaps(tensor):
        raise refusal(f"{where} is an expanded tensor, whose elements share memory")
    return f"Like({tensor.dtype}, {shape}, {literal(tensor.stride(), where)})"


def _overlaps(tensor: Tensor) -> bool:
    """Whether two elements share a place in memory."""
    steps = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    reach = 0
    for step, size in steps:
        if size > 1 and step <= reach:
            return True
        reach += step * (size - 1)
    return False


def argument_text(value: Any, where: str) -> str:
    """An argument of forward as text: a tensor as `Like`, a list of tensors as a list of these.

    Raises:
        UsageError: it is neither of these nor a plain value.
    """
    if isinstance(value, Tensor):
        return tensor_text(value, where)
    if is_tensor_list(value):
        return f"[{', '.join(tensor_text(item, where) for item in value)}]"
    return literal(value, where)


def is_tensor_list(value: Any) -> bool:
    """Whether a value is a flat list or tuple of tensors, which a schema calls `Tensor[]`."""
    flat = type(value) in (list, tuple) and len(value) > 0
    return flat and all(isinstance(item, Tensor) for item in value)


def tensors_within(value: Any) -> list[Tensor]:
    """The tensors of one argument of forward."""
    if isinstance(value, Tensor):
        return [value]
    return list(value) if is_tensor_list(value) else []


def accessors(tree: Any, path: str) -> dict[str, Tensor]:
    """Every tensor of an outcome under the Python text that takes it out of `path`, in order.

    Raises:
        UsageError: something in it is no tuple, list, dict, tensor or None.

    >>> print(*accessors((torch.zeros(1), {"a": [torch.zeros(1)]}), "out"))
    out[0] out[1]["a"][0]
    """
    if isinstance(tree, Tensor):
        return {path: tree}
    found: dict[str, Tensor] = {}
    for key, item in _items(tree):
        found |= accessors(item, f"{path}[{literal(key, 'a key of the outcome')}]")
    return found


def builder(tree: Any, names: Sequence[str]) -> str:
    """Python text that puts tensors of the given names into the nesting of `tree`."""
    return _build(tree, list(names))


def _build(tree: Any, names: list[str]) -> str:
    if isinstance(tree, Tensor):
        return names.pop(0)
    if tree is None:
        return "None"
    parts = [(key, _build(item, names)) for key, item in _items(tree)]
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{literal(key, 'a key')}: {text}" for key, text in parts) + "}"
    return _sequence([text for _, text in parts], tree) if parts else repr(tree)


def _items(tree: Any) -> list[tuple[Any, Any]]:
    if tree is None:
        return []
    if type(tree) in (list, tuple):
        return list(enumerate(tree))
    if type(tree) is dict:
        return list(tree.items())
    raise refusal(f"the reference returns a {type(tree).__name__}, not tensors, tuples or dicts")
