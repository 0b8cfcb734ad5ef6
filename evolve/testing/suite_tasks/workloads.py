"""Inputs that a definition and a workload in JSON describe, and the rule of that workload.

The forms are those of flashinfer-bench and SOL-ExecBench. `definition.json` and `workloads.json`
lie beside the task's module, as do the files that workloads name.
"""

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evolve.testing.checks import Check
from evolve.testing.suite_tasks.rules import matched

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NARROW = ("float8_e4m3fn", "float8_e5m2")
_HEADER = 8  # bytes of a safetensors file that hold the length of its description
_SAFETENSORS = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16,
    "I32": torch.int32, "I64": torch.int64, "F16": torch.float16, "BF16": torch.bfloat16,
    "F32": torch.float32, "F64": torch.float64, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip


def inputs_of(names: Mapping[str, Any], workload: str) -> list[Any]:
    """Arguments of a definition's `run`, in its order.

    Args:
        names: of the task's module.
        workload: its name.
    """
    folder = Path(names["__file__"]).parent
    definition, chosen = _read(folder, workload)
    axes = axes_of(definition["axes"], chosen["axes"])
    given: dict[str, Any] = chosen["inputs"]
    made = _custom(names, definition, axes, given)
    values = []
    for name, spec in definition["inputs"].items():
        source = given.get(name, {"type": "random"})
        if source["type"] == "custom":
            values.append(made[name])
        elif source["type"] == "scalar":
            values.append(source["value"])
        elif source["type"] == "safetensors":
            values.append(_loaded(folder / Path(source["path"]).name, source["tensor_key"]))
        else:
            values.append(_random(name, spec, axes, definition.get("op_type") or ""))
    return values


def rule_of(names: Mapping[str, Any], workload: str) -> Check:
    """The suite's rule for outcomes of this workload."""
    definition, chosen = _read(Path(names["__file__"]).parent, workload)
    if definition["suite"] == "flashinfer_bench":
        share = 0.95 if definition.get("op_type") == "moe" else 1.0
        return matched(1e-2, 1e-2, share, either=True)
    tolerance = chosen.get("tolerance") or {}
    return matched(
        tolerance.get("max_atol", 1e-2),
        tolerance.get("max_rtol", 1e-2),
        tolerance.get("required_matched_ratio", 0.99),
        cap=tolerance.get("max_error_cap"),
        negative_infinity=tolerance.get("allow_negative_inf", False),
    )


def axes_of(axes: Mapping[str, Mapping[str, Any]], chosen: Mapping[str, int]) -> dict[str, int]:
    """The sizes of all axes: constant, of the workload, or computed from others."""
    sizes = {name: int(axis["value"]) for name, axis in axes.items() if axis["type"] == "const"}
    sizes |= {name: int(size) for name, size in chosen.items()}
    for name, axis in axes.items():
        if axis["type"] == "expr":
            sizes[name] = _computed(ast.parse(axis["expression"], mode="eval").body, sizes)
    return sizes


def _computed(node: ast.expr, sizes: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(int(value)):
            return value
        case ast.Name(name):
            return sizes[name]
        case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
            return _OPERATORS[type(kind)](_computed(left, sizes), _computed(right, sizes))
        case ast.UnaryOp(ast.USub(), value):
            return -_computed(value, sizes)
    raise ValueError(f"an axis is {ast.unparse(node)!r}, which is no arithmetic of other axes")


def _read(folder: Path, workload: str) -> tuple[dict[str, Any], dict[str, Any]]:
    definition = json.loads((folder / "definition.json").read_text())
    return definition, json.loads((folder / "workloads.json").read_text())[workload]


def _custom(
    names: Mapping[str, Any],
    definition: Mapping[str, Any],
    axes: Mapping[str, int],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """The inputs that the definition's own function makes, if it has one."""
    entry = definition.get("custom_inputs_entrypoint")
    if not entry:
        return {}
    scalars = {name: one["value"] for name, one in given.items() if one["type"] == "scalar"}
    made: dict[str, Any] = names[entry]({**axes, **scalars}, torch.get_default_device())
    return made


def _random(name: str, spec: Mapping[str, Any], axes: Mapping[str, int], op: str) -> Any:
    dtype = getattr(torch, spec["dtype"])
    if spec["shape"] is None:
        return _drawn([], dtype).item()
    shape = [axes[one] if isinstance(one, str) else int(one) for one in spec["shape"]]
    if not dtype.is_floating_point or spec["dtype"] in _NARROW:
        return _drawn(shape, dtype)
    if op == "sampling" and name == "probs":
        return torch.softmax(torch.randn(shape), -1).to(dtype)
    return _typical(name, str(spec.get("description") or "").lower(), shape).to(dtype)


def _typical(name: str, about: str, shape: list[int]) -> Tensor:
    """Values that a tensor of this name has in a model, as SOL-ExecBench draws them.

    Weights of a norm are near 1 in place of 1, so that a kernel cannot leave them out.
    """
    values = torch.randn(shape)
    words = name.rstrip("0123456789").split("_")
    if any(word.endswith("norm") for word in words[:-1]) and words[-1] in ("weight", "bias"):
        return values * 0.1 + (words[-1] == "weight")
    if "mask" in words and len(shape) > 1 and shape[-1] == shape[-2]:
        return torch.full(shape, torch.finfo(torch.float16).min).triu(1)
    if "mask" in words and ("binary" in about or "0 or 1" in about):
        return (values > 0).float()
    if words[0] in ("cos", "sin") or words[-1] in ("cos", "sin"):
        return values.cos() if "cos" in words else values.sin()
    if words[-1] in ("rstd", "std", "var", "variance"):
        return values.abs() + 0.1
    if name in ("A", "A_log", "A_cumsum", "g"):
        return _decay(name, shape)
    if (name.endswith("_weights") and "softmax" in about) or name == "routing_weights":
        return values.softmax(-1)
    if len(shape) > 1 and words[-1] in ("weight", "weights", "proj", "projs"):
        return values / math.sqrt(shape[-1])
    return values


def _decay(name: str, shape: list[int]) -> Tensor:
    """Negative rates of a state space model."""
    if name == "A_cumsum":
        return (torch.rand(shape) * -0.1).cumsum(-1)
    low, high = {"A_log": (-5.0, -1.0), "A": (-1.0, -0.001), "g": (-5.0, 0.0)}[name]
    return torch.rand(shape) * (high - low) + low


def _drawn(shape: list[int], dtype: torch.dtype) -> Tensor:
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    if dtype.is_floating_point:
        return torch.randn(shape).clamp_(-2.0, 2.0).to(dtype)
    low, high = (-128, 128) if dtype is torch.int8 else (-1024, 1024)
    return torch.randint(low, high, shape, dtype=dtype)


def _loaded(path: Path, key: str) -> Tensor:
    """A tensor of a safetensors file: a length, a description in JSON, and the values."""
    content = path.read_bytes()
    end = _HEADER + int.from_bytes(content[:_HEADER], "little")
    about = json.loads(content[_HEADER:end])[key]
    first, last = about["data_offsets"]
    values = bytearray(content[end + first : end + last])
    dtype = _SAFETENSORS[about["dtype"]]
    flat = torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)
    return flat.reshape(about["shape"]).to(torch.get_default_device())
