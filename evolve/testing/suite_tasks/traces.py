"""Arguments of an operator as BackendBench's traces write them: `((T([2, 3], f16), 1), {})`."""

import ast
import math
from typing import Any

import torch
from torch import Tensor

_TYPES = {
    "bf16": torch.bfloat16, "f64": torch.float64, "f32": torch.float32, "f16": torch.float16,
    "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128, "i8": torch.int8,
    "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "b8": torch.bool,
    "u8": torch.uint8,
}  # fmt: skip
_NUMBERS = {"inf": math.inf, "nan": math.nan}
_PLAIN = (torch.dtype, torch.layout, torch.memory_format)


def arguments_of(text: str) -> tuple[Any, Any]:
    """The positional and the keyword arguments, tensors drawn from torch's generator.

    Floating tensors are uniform in [0, 1), others as `torch.testing.make_tensor` draws them.

    Raises:
        ValueError: the text is not of this form. None of it is executed.
    """
    args, kwargs = _value(ast.parse(text.strip(), mode="eval").body)
    return tuple(args), dict(kwargs)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Tuple(elements):
            return tuple(map(_value, elements))
        case ast.List(elements):
            return list(map(_value, elements))
        case ast.Dict(keys, values):
            return {_value(k): _value(v) for k, v in zip(keys, values, strict=True) if k}
        case ast.Call(ast.Name("T"), parts):
            return _tensor(*map(_value, parts))
        case ast.Constant(str(name)):
            return _TYPES.get(name, name)
        case ast.Name() | ast.Attribute() | ast.Call():
            return _named(node)
        case ast.UnaryOp(ast.USub(), ast.Name(name)) if name in _NUMBERS:
            return -_NUMBERS[name]
    return ast.literal_eval(node)


def _named(node: ast.expr) -> Any:
    """A type, a number without a literal, a constant of torch, or the device."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("torch"), "device")):
            return torch.get_default_device()
        case ast.Attribute(ast.Name("torch" | "th"), name):
            found = getattr(torch, name, None)
            if isinstance(found, _PLAIN):
                return found
        case ast.Name(name) if name in _TYPES:
            return _TYPES[name]
        case ast.Name(name) if name in _NUMBERS:
            return _NUMBERS[name]
    raise ValueError(f"{ast.unparse(node)} is no argument of a trace")


def _tensor(shape: list[int], dtype: torch.dtype, strides: list[int] | None = None) -> Tensor:
    low, high = (0, 1) if dtype.is_floating_point else (None, None)
    extent = shape
    if strides is not None:
        extent = [1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))]
    place = torch.get_default_device()
    made = torch.testing.make_tensor(extent, dtype=dtype, device=place, low=low, high=high)
    return made if strides is None else made.as_strided(shape, strides)
