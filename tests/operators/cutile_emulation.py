"""The functions of cuTile that programs of this project use, as those of torch on the CPU.

Blocks of a grid run one after another; an element that a gather's mask leaves out is not read.
"""

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_at: list[int] = [0, 0, 0]


class _Constant:
    def __class_getitem__(cls, _: Any) -> type:
        return cls


def _gather(array: Any, at: Any, mask: Any = True, padding_value: Any = 0, **_: Any) -> Any:
    places, inside = torch.broadcast_tensors(torch.as_tensor(at), torch.as_tensor(mask))
    assert not places[inside].numel() or int(places[inside].max()) < array.numel()
    found = array[torch.where(inside, places, 0).long()]
    return torch.where(inside, found, torch.as_tensor(padding_value, dtype=array.dtype))


def _scatter(array: Any, at: Any, value: Any, mask: Any = True, **_: Any) -> None:
    both = torch.as_tensor(at), torch.as_tensor(mask), torch.as_tensor(value)
    shape = torch.broadcast_shapes(*(each.shape for each in both[:2]))
    places, inside, values = (each.broadcast_to(shape) for each in both)
    array[places[inside].long()] = values[inside]


def _parts(array: Any, index: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    starts = [int(i) * n for i, n in zip(index, shape, strict=True)]
    assert all(start < size for start, size in zip(starts, array.shape, strict=True))
    return tuple(slice(start, start + n) for start, n in zip(starts, shape, strict=True))


def _load(array: Any, index: Any, shape: Any, padding_mode: Any) -> Any:
    part = array[_parts(array, index, shape)]
    tile = torch.zeros(shape, dtype=array.dtype)
    tile[tuple(slice(n) for n in part.shape)] = part
    return tile


def _store(array: Any, index: Any, tile: Any) -> None:
    part = array[_parts(array, index, tuple(tile.shape))]
    part.copy_(tile[tuple(slice(n) for n in part.shape)])


def _mma(a: Any, b: Any, total: Any) -> Any:
    return total + a.float() @ b.float()


def _where(condition: Any, one: Any, other: Any) -> Any:
    return torch.where(torch.as_tensor(condition), one, other)


def _reduced(reduce: Callable[..., Any]) -> Callable[..., Any]:
    return lambda value, axis, keepdims, **_: reduce(value, dim=axis, keepdim=keepdims)


def _either(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda a, b, propagate_nan: of(torch.as_tensor(a), torch.as_tensor(b))


def _launch(_: Any, grid: tuple[int, ...], kernel: Any, arguments: tuple[Any, ...]) -> None:
    for place in itertools.product(*map(range, grid)):
        _at[: len(place)] = place
        kernel(*arguments)


def prepare() -> None:
    """Let `import cuda.tile` find these functions, and torch a stream."""
    module: Any = types.ModuleType("cuda.tile")
    for name in ("float32", "float16", "bfloat16", "int32", "int64", "zeros", "full", "isnan"):
        setattr(module, name, getattr(torch, name))
    for name in ("abs", "exp", "log", "rsqrt", "sqrt", "tanh", "floor", "reshape", "broadcast_to"):
        function = getattr(torch, name)
        setattr(module, name, lambda x, *more, of=function: of(torch.as_tensor(x), *more))
    module.bool_, module.Constant = torch.bool, _Constant
    module.kernel = module.function = lambda function: function
    module.PaddingMode = types.SimpleNamespace(ZERO=0)
    module.bid, module.cdiv = (lambda axis: _at[axis]), (lambda a, b: -(-a // b))
    module.arange = lambda size, dtype: torch.arange(size, dtype=dtype)
    module.full = lambda shape, value, dtype: torch.full(shape, value, dtype=dtype)
    module.astype = lambda value, dtype: torch.as_tensor(value).to(dtype)
    module.sum, module.prod = _reduced(torch.sum), _reduced(torch.prod)
    module.max, module.min = _reduced(torch.amax), _reduced(torch.amin)
    module.maximum, module.minimum = _either(torch.maximum), _either(torch.minimum)
    module.gather, module.scatter, module.where = _gather, _scatter, _where
    module.load, module.store, module.mma, module.launch = _load, _store, _mma, _launch
    sys.modules["cuda"] = sys.modules.get("cuda") or types.ModuleType("cuda")
    sys.modules["cuda"].tile = module  # type: ignore[attr-defined]
    sys.modules["cuda.tile"] = module
    torch.cuda.current_stream = lambda *_: None  # type: ignore[assignment]
