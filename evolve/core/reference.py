"""The cost of a task's reference as known before any program is judged: an estimate, no verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """All calls of an operation of PyTorch on operands of the same shapes, in one call of a model.

    Attributes:
        name: in ATen, without the overload.
        shapes: of its largest operands, at most two.
        calls: how many.
        time_ms: of all of them.
        moved_bytes: operands and outcomes of all of them, each once.
        flops: of matrix products, convolutions and attention; 0 for other operations.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...] = ()
    calls: int = 1
    time_ms: float
    moved_bytes: int
    flops: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseCost:
    """One timed case of a task.

    Attributes:
        name: of the case.
        time_ms: of a call by PyTorch eager, the shortest of a few, without an interval.
        moved_bytes: inputs, parameters and outputs, each once.
        flops: of matrix products, convolutions and attention.
        bytes_per_s: the measured rate of a copy at this size.
        flops_per_s: the highest measured rate for those operations; None if there are none.
        bound: which of both takes longer, as in `CaseResult.bound`.
        operations: those that took longest, first.
        others_ms: all other operations together.
    """

    name: str
    time_ms: float
    moved_bytes: int
    flops: int
    bytes_per_s: float
    flops_per_s: float | None
    bound: str
    operations: tuple[OperationCost, ...] = ()
    others_ms: float = 0.0

    @property
    def memory_ms(self) -> float:
        """Time for the bytes."""
        return 1e3 * self.moved_bytes / self.bytes_per_s

    @property
    def arithmetic_ms(self) -> float:
        """Time for the operations."""
        return 1e3 * self.flops / self.flops_per_s if self.flops_per_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCost:
    """The reference on a device.

    Attributes:
        device: facts, by the names of `Evaluation.environment`.
        cases: those that are timed.
        flops_per_s: measured rates of matrix products that the task allows, by arithmetic.
        longest_sum: terms of it, by which errors are judged; 0 if it is unknown.
    """

    device: Mapping[str, str] = field(default_factory=dict)
    cases: Sequence[CaseCost] = ()
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    longest_sum: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data; `from_json` gives an equal object back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "ReferenceCost":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError if it is none."""
        return cls(
            device={str(name): str(value) for name, value in dict(data["device"]).items()},
            cases=tuple(map(_case, data["cases"])),
            flops_per_s={str(k): float(v) for k, v in dict(data["flops_per_s"]).items()},
            longest_sum=int(data["longest_sum"]),
        )


def _case(data: Mapping[str, Any]) -> CaseCost:
    rate = data["flops_per_s"]
    return CaseCost(
        name=str(data["name"]),
        time_ms=float(data["time_ms"]),
        moved_bytes=int(data["moved_bytes"]),
        flops=int(data["flops"]),
        bytes_per_s=float(data["bytes_per_s"]),
        flops_per_s=None if rate is None else float(rate),
        bound=str(data["bound"]),
        operations=tuple(map(_operation, data["operations"])),
        others_ms=float(data["others_ms"]),
    )


def _operation(data: Mapping[str, Any]) -> OperationCost:
    return OperationCost(
        name=str(data["name"]),
        shapes=tuple(tuple(map(int, shape)) for shape in data["shapes"]),
        calls=int(data["calls"]),
        time_ms=float(data["time_ms"]),
        moved_bytes=int(data["moved_bytes"]),
        flops=int(data["flops"]),
    )
