"""Named families of inputs, made from a task's own, to show what its usual values hide.

A family changes only floating tensors, and keeps what the task's own values look like they keep:
integral values, rows that sum to one, symmetric and structurally zero matrices, bounded ranges and
signs. Where a family would leave the support it does not apply.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evolve.core.errors import UsageError
from evolve.worker.blocks import unit_roundoff
from evolve.worker.seeding import generator
from evolve.worker.trees import map_tensors, tensors_of

if TYPE_CHECKING:
    from evolve.worker.taskfile import LoadedCase

TASK_FAMILY = "task"
_PROBE_SEEDS = (0x5EED, 0x5EED + 1)
_LIGHT_TAIL = 2.0  # range over deviation: 1.73 for uniform values, above 3 for normal ones
_LEAST_NUMEL = 8  # smaller tensors are settings, not data


@dataclass(frozen=True, slots=True)
class Support:
    """What the values of one tensor appear to be restricted to.

    `low` and `high` are bounds that hold (infinite where there seem to be none); `scalable` says
    whether rows may be scaled down each by its own factor, `fillable` whether any element may be
    replaced by another value of the range.
    """

    low: float
    high: float
    deviation: float
    scalable: bool
    fillable: bool

    def contains(self, tensor: Tensor) -> bool:
        low, high = tensor.aminmax()
        return self.low <= float(low) and float(high) <= self.high


def support_of(tensor: Tensor) -> Support | None:
    """The support that a tensor's values show; None where they must not be changed at all."""
    if not tensor.is_floating_point() or tensor.numel() < _LEAST_NUMEL:
        return None
    values = tensor.double()
    low, high = (float(bound) for bound in values.aminmax())
    if not values.isfinite().all() or low == high or _is_fixed(values):
        return None
    middle, deviation = float(values.mean()), float(values.std())
    light = max(high - middle, middle - low) <= _LIGHT_TAIL * deviation
    if light:
        bounds = (low, high)
    else:
        bounds = (0.0 if low >= 0 else -torch.inf, 0.0 if high <= 0 else torch.inf)
    through_zero = bounds[0] <= max(0.0, 1e-2 * deviation) and bounds[1] >= 0
    symmetric = values.dim() >= 2 and values.shape[-1] == values.shape[-2]
    symmetric = symmetric and torch.equal(values, values.mT)
    structured = float((values == 0).double().mean()) > 0.05
    return Support(
        min(bounds[0], 0.0) if through_zero else bounds[0],
        bounds[1],
        deviation,
        scalable=through_zero and not symmetric,
        fillable=not structured and not symmetric,
    )


def _is_fixed(values: Tensor) -> bool:
    """Integral values (labels, masks), and rows of equal sum or norm (simplices, directions)."""
    if torch.equal(values, values.round()):
        return True
    if values.dim() == 0 or values.shape[-1] < 2:
        return False
    rows = values.reshape(-1, values.shape[-1])
    if rows.shape[0] < 2:
        return abs(float(rows.sum()) - 1) < 1e-3 or abs(float(rows.norm()) - 1) < 1e-3
    return any(
        float(sums.abs().min()) > 0 and float(sums.std()) < 1e-3 * float(sums.abs().mean())
        for sums in (rows.sum(dim=1), rows.norm(dim=1))
        if rows.shape[1] <= 1 << 16
    )


def _scaled_up(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    return x * 8 if support.scalable and not torch.isfinite(_width(support)) else None


def _scaled_down(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    return x / 64 if _width(support).isinf() or support.scalable else None


def _heterogeneous_rows(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.scalable:
        return None
    rows = (*x.shape[:-1], 1)
    exponents = torch.rand(rows, generator=draws).to(x) * 12 - (6 if _unbounded(support) else 12)
    return x * torch.exp2(exponents)


def _ties(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.fillable:
        return None
    levels = x.reshape(-1)[torch.randint(x.numel(), (5,), generator=draws).to(x.device)]
    nearest = (x.reshape(-1, 1) - levels).abs().argmin(dim=1)
    return levels[nearest].reshape(x.shape)


def _sparse(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not (support.fillable and support.low <= 0 <= support.high):
        return None
    kept = torch.rand(x.shape, generator=draws).to(x.device) < 1 / 32
    kept[..., -1] = True  # the place that a loop with a wrong bound leaves out
    return torch.where(kept, x, 0.0)


def _shifted(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    return x + 4 * support.deviation if support.fillable and _unbounded(support) else None


def _one_hot_large(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.fillable or not support.low <= 0 <= support.high or x.dim() == 0:
        return None
    size = 16 * support.deviation if support.high == torch.inf else support.high
    places = torch.randint(x.shape[-1], (*x.shape[:-1], 1), generator=draws)
    places[..., 0] = torch.where(
        torch.rand(x.shape[:-1], generator=draws) < 0.5, x.shape[-1] - 1, places[..., 0]
    )
    return (x / 64).scatter(-1, places.to(x.device), size)


def _width(support: Support) -> Tensor:
    return torch.tensor(support.high - support.low)


def _unbounded(support: Support) -> bool:
    return support.high == torch.inf


Family = Callable[[Tensor, Support, torch.Generator], Tensor | None]

FAMILIES: dict[str, Family] = {
    "scaled_up": _scaled_up,
    "scaled_down": _scaled_down,
    "heterogeneous_rows": _heterogeneous_rows,
    "ties": _ties,
    "sparse": _sparse,
    "shifted": _shifted,
    "one_hot_large": _one_hot_large,
}


def transform(inputs: list[Any], family: str, seed: int) -> list[Any]:
    """The inputs in a family; a function of the inputs, the family and the seed.

    Raises:
        UsageError: there is no such family.
    """
    if family == TASK_FAMILY:
        return inputs
    if family not in FAMILIES:
        known = ", ".join([TASK_FAMILY, *FAMILIES])
        raise UsageError(f"input family {family!r} is unknown; choose one of {known}.")
    draws = generator(seed, "family", family)
    return list(map_tensors(lambda tensor: _transformed(tensor, FAMILIES[family], draws), inputs))


def _transformed(tensor: Tensor, family: Family, draws: torch.Generator) -> Tensor:
    support = support_of(tensor)
    changed = family(tensor, support, draws) if support else None
    if support is None or changed is None or not support.contains(changed):
        return tensor
    return changed.to(tensor.dtype)


def applicable_families(case: "LoadedCase") -> tuple[str, ...]:
    """Families that change something and in which the reference is finite and precise enough.

    Precise enough: its own error against fp64 stays below the root of the unit roundoff.
    """
    model = case.model(_PROBE_SEEDS[0])
    return (TASK_FAMILY, *(name for name in FAMILIES if _applies(case, model, name)))


def _applies(case: "LoadedCase", model: torch.nn.Module, family: str) -> bool:
    for seed in _PROBE_SEEDS:
        inputs, own = case.inputs(seed, family), case.inputs(seed)
        pairs = zip(tensors_of(inputs), tensors_of(own), strict=True)
        if all(torch.equal(changed, before) for changed, before in pairs):
            return False
        try:
            expected = case.expected(model, inputs)
        except UsageError:
            return False  # the reference itself refuses these values
        for reference, budget in zip(expected.reference, expected.budgets, strict=True):
            if budget is None:
                continue
            if not bool(reference.isfinite().all()):
                return False
            if float(budget.reference_rms.max()) > unit_roundoff(reference.dtype) ** 0.5:
                return False
    return True
