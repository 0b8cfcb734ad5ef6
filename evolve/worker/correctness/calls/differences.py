"""Whether two calls of a reference have the same outcome."""

from collections.abc import Sequence

import torch
from torch import Tensor

from evolve.worker.correctness.tolerance import computable, real, unit_roundoff
from evolve.worker.ipc.pytree import components


def same(some: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, NaN included."""
    if some.shape != other.shape or some.dtype != other.dtype or some.layout != other.layout:
        return False
    if some.layout is not torch.strided:
        return all(map(same, components(some), components(other)))
    some, other = computable(some), computable(other)
    if torch.equal(some, other):
        return True
    if not (some.is_floating_point() or some.is_complex()):
        return False
    return bool(((some == other) | (some.isnan() & other.isnan())).all())


def first_difference(some: Sequence[Tensor], others: Sequence[Tensor]) -> str:
    """The first output that differs by more than another order of additions explains; or none."""
    if len(some) != len(others):
        return "the number of outputs"
    pairs = enumerate(zip(some, others, strict=True))
    return next((f"output {at}" for at, (a, b) in pairs if _differ(a, b)), "")


def _differ(some: Tensor, other: Tensor) -> bool:
    """By more than another order of additions explains."""
    if same(some, other):
        return False
    if some.shape != other.shape or some.dtype != other.dtype or some.layout is not torch.strided:
        return True
    if not (some.is_floating_point() or some.is_complex()):
        return True
    unit = unit_roundoff(real(some).dtype) ** 0.5
    a, b = (real(computable(one)).double() for one in (some, other))
    finite = a.isfinite() & b.isfinite()
    if not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()):
        return True
    a, b = torch.where(finite, a, 0.0), torch.where(finite, b, 0.0)
    return bool(((a - b).abs() > unit * (b.abs() + b.square().mean().sqrt())).any())
