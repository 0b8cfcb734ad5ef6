"""Whether a winner and the original give the same: within rounding, held against float64."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.worker.correctness.tolerance import (
    KAPPA,
    MAX_TERMS,
    PEAK,
    Arithmetic,
    error_blocks,
    output_budget,
    real,
    unit_roundoff,
)
from evolve.worker.ipc.pytree import cast_floating, flatten

ROUNDINGS = 2.0  # to the type, of a block's size, that are allowed in any case
ROUNDINGS_OF_BOTH = 8.0  # where the original's own error is not known
_ARITHMETIC = Arithmetic(accumulation="ieee", terms=MAX_TERMS, even=True)


def disagreement(found: Any, own: Any, truth: Any) -> str:
    """How two outcomes differ by more than rounding allows; empty if they do not.

    Outcomes are compared by blocks, as the judge does: in each a winner may be `KAPPA` times as far
    from the truth as the original, or `ROUNDINGS` relative to the block's root mean square. Without
    a truth the original is taken for it, and `ROUNDINGS_OF_BOTH` are allowed. Other values than
    floating ones are equal.

    Args:
        found: the winner's outcome.
        own: the original's.
        truth: the original's in float64; None if it does not run in that.
    """
    try:
        (ours, shape), (theirs, wanted) = flatten(found), flatten(own)
        exact = theirs if truth is None else flatten(truth)[0]
        roundings = ROUNDINGS_OF_BOTH if truth is None else ROUNDINGS
    except TypeError as error:
        return str(error)
    if shape != wanted:
        return f"it gives {shape}, the original {wanted}"
    for number, (one, other, true) in enumerate(zip(ours, theirs, exact, strict=True)):
        if said := _difference(one, other, true, roundings):
            return f"output {number} {said}"
    return ""


def truth_of(original: Any, arguments: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The outcome in float64; None if it cannot be had.

    Args:
        original: a module, which is copied, or a function.
        arguments: of the call, which may be written to.
        kwargs: of the call, which may be written to.
    """
    try:
        wide = copy.deepcopy(original).double() if isinstance(original, nn.Module) else original
        call: Callable[..., Any] = wide.forward if isinstance(wide, nn.Module) else wide
        with torch.no_grad():
            return call(*cast_floating(list(arguments), torch.float64), **_wide(kwargs))
    except FAILURES_OF_A_FUNCTION:
        return None


def _wide(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: cast_floating(value, torch.float64) for name, value in kwargs.items()}


def _difference(one: Tensor, other: Tensor, true: Tensor, roundings: float) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"is {one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
    if not other.is_floating_point() and not other.is_complex():
        return "" if torch.equal(one, other) else "has other values"
    one, other, true = (real(x.detach()) for x in (one, other, true))
    finite = torch.isfinite(other)
    if not torch.equal(_special(one), _special(other)):
        return "has NaN or infinities in other places"
    true = torch.where(torch.isfinite(true), true, other)
    one, other, true = (torch.where(finite, x, 0.0) for x in (one, other, true))
    return _off(one, other, true, roundings) if true.numel() else ""


def _special(values: Tensor) -> Tensor:
    """0 for finite values, and another number for each of NaN and both infinities."""
    return values.isnan() * 1 + values.isposinf() * 2 + values.isneginf() * 3


def _off(one: Tensor, other: Tensor, true: Tensor, roundings: float) -> str:
    """How far finite values are off in the worst block, if that is more than is allowed."""
    budget = output_budget(other, true, _ARITHMETIC)
    if budget is None or not true.any():
        is_near = float(one.abs().max()) <= KAPPA * float(other.abs().max())
        return "" if is_near else "is not zero everywhere"
    least = roundings * unit_roundoff(other.dtype)
    limits = budget.rms.clamp(min=least), budget.peak.clamp(min=PEAK * least)
    found = [error / budget.scale for error in error_blocks(one, true, budget.block)]
    for error, limit, name in zip(found, limits, ("", "in one element "), strict=True):
        worst = int((error / limit).nan_to_num(nan=torch.inf).argmax())
        if not error[worst] <= limit[worst]:
            return (
                f"is off by {float(error[worst]):.2g} where {float(limit[worst]):.2g} is allowed, "
                f"{name}relative to the root mean square of {budget.block} elements"
            )
    return ""
