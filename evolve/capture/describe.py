"""The description of a call's arguments (`evolve.testing.suite_tasks.captured`)."""

import ast
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evolve.capture.withheld import is_withheld
from evolve.tasks.values import literal, nesting_fault

MAX_KEPT = 1 << 20  # bytes of one tensor whose own values are kept
MAX_ALL = 8 << 20  # of all those of a task


class Undescribed(Exception):
    """No description stands for a call; the message says why."""


@dataclass
class Descriptions:
    """Those of one task; `files` are values that have to be kept, by name.

    Args:
        name: first part of the names of files.
    """

    name: str
    files: dict[str, Tensor] = field(default_factory=dict)

    def of(self, tree: Any, path: str = "argument") -> Any:
        """The description of arguments.

        Raises:
            Undescribed: one is an object of another kind; the message says where.
        """
        if isinstance(tree, Tensor):
            return self._tensor(tree, path)
        if type(tree) in (list, tuple, dict):
            return self._container(tree, path)
        return self._plain(tree, path)

    def _container(self, tree: Any, path: str) -> Any:
        if said := nesting_fault(tree):
            raise Undescribed(f"{path} is {said}, which a task cannot hold")
        if type(tree) is not dict:
            return type(tree)(self.of(one, f"{path}[{n}]") for n, one in enumerate(tree))
        for key in tree:
            _require_plain(key, path)
            if is_withheld(key, tree[key]):
                raise Undescribed(f"{path}[{key!r}] is a secret by its name, and tasks hold none")
        return {"dict": {key: self.of(one, f"{path}[{key!r}]") for key, one in tree.items()}}

    def _plain(self, tree: Any, path: str) -> Any:
        if isinstance(tree, torch.dtype):
            return {"torch": str(tree).removeprefix("torch.")}
        if isinstance(tree, float) and not math.isfinite(tree):
            return {"float": str(tree)}
        if is_withheld("", tree):
            raise Undescribed(f"{path} looks like a key, and tasks hold no secrets")
        if literal(tree) is None:
            raise Undescribed(f"{path} is a {type(tree).__name__}, which a task cannot hold")
        return tree

    def _tensor(self, tensor: Tensor, path: str) -> dict[str, Any]:
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout != torch.strided:
            raise Undescribed(f"{path} is no plain dense tensor")
        found: dict[str, Any] = {
            "tensor": tuple(tensor.shape),
            "dtype": str(tensor.dtype).removeprefix("torch."),
        }
        if not tensor.is_contiguous():
            found["stride"] = tensor.stride()
        return found | self._values(tensor.detach(), path)

    def _values(self, tensor: Tensor, path: str) -> dict[str, Any]:
        if tensor.numel() == 0:
            return {"constant": 0}
        first = tensor.reshape(-1)[0]
        if bool((tensor == first).all()):
            return {"constant": self.of(first.item())}
        if _has_structure(tensor) and (kept := self._kept(tensor)):
            return kept
        if tensor.dtype == torch.bool:
            return {"share": float(tensor.double().mean())}
        if tensor.is_complex():
            raise Undescribed(f"{path} is complex and larger than {MAX_KEPT >> 20} MiB")
        if tensor.is_floating_point():
            return _range(tensor)
        return {"low": int(tensor.min()), "high": int(tensor.max())}

    def _kept(self, tensor: Tensor) -> dict[str, Any] | None:
        total = sum(one.nbytes for one in self.files.values())
        size = tensor.numel() * tensor.element_size()
        if size > MAX_KEPT or total + size > MAX_ALL:
            return None
        name = f"{self.name}.{len(self.files)}.pt"
        self.files[name] = tensor.cpu().contiguous().clone()
        return {"file": name}


def _require_plain(key: Any, path: str) -> None:
    """Raise Undescribed for a key of a dict that is no plain value."""
    try:
        is_plain = ast.literal_eval(repr(key)) == key and literal(key) is not None
    except (ValueError, SyntaxError):
        is_plain = False
    if not is_plain:
        raise Undescribed(f"{path} has a {type(key).__name__} as a key, which a task cannot hold")


def _range(tensor: Tensor) -> dict[str, Any]:
    finite = tensor[torch.isfinite(tensor)].double()
    if not len(finite):
        return {"constant": 0.0}
    scale = float(finite.abs().max()) or 1.0  # squares of large values are infinite
    scaled = finite / scale
    low, high = scaled.aminmax()
    numbers = {"low": low, "high": high, "mean": scaled.mean(), "std": scaled.std(correction=0)}
    return {name: float(f"{float(value) * scale:.4g}") for name, value in numbers.items()}


def _has_structure(tensor: Tensor) -> bool:
    """Whether draws would be of another kind: masks, positions, offsets, permutations."""
    if tensor.dtype == torch.bool or tensor.is_complex():
        return True
    if tensor.is_floating_point():
        return not bool(torch.isfinite(tensor).all()) or len(tensor[:1024].unique()) <= 2
    is_sorted = tensor.dim() > 0 and bool((tensor.diff(dim=-1) >= 0).all())
    return is_sorted or len(tensor.unique()) == tensor.numel()
