"""Whether a winner and the original give the same: within rounding, held against float64."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.worker.ipc.pytree import cast_floating, flatten

TIMES = 4.0  # the winner's error over the original's own
STEPS = 32.0  # roundings of the largest value that are allowed in any case


def disagreement(found: Any, own: Any, truth: Any) -> str:
    """How two outcomes differ by more than rounding allows; empty if they do not.

    A winner may be `TIMES` as far from the truth as the original, and `STEPS` roundings of the
    largest value more. Without a truth the original is taken for it. Other values than floating
    ones are equal.

    Args:
        found: the winner's outcome.
        own: the original's.
        truth: the original's in float64; None if it does not run in that.
    """
    try:
        (ours, shape), (theirs, wanted) = flatten(found), flatten(own)
        exact = theirs if truth is None else flatten(truth)[0]
    except TypeError as error:
        return str(error)
    if shape != wanted:
        return f"it gives {shape}, the original {wanted}"
    for number, (one, other, true) in enumerate(zip(ours, theirs, exact, strict=True)):
        if said := _difference(one, other, true):
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


def _difference(one: Tensor, other: Tensor, true: Tensor) -> str:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"is {one.dtype} {tuple(one.shape)}, not {other.dtype} {tuple(other.shape)}"
    if not other.is_floating_point():
        return "" if torch.equal(one, other) else "has other values"
    finite = torch.isfinite(other)
    if not torch.equal(one[~finite].nan_to_num(), other[~finite].nan_to_num()):
        return "has NaN or infinities in other places"
    if not finite.any():
        return ""
    ours, theirs, exact = (x[finite].detach().double() for x in (one, other, true))
    rounding = torch.finfo(other.dtype).eps * float(exact.abs().max())
    allowed = TIMES * float((theirs - exact).abs().max()) + STEPS * rounding
    off = float((ours - exact).abs().max())
    if off <= allowed:
        return ""
    return f"is off by {off:.3g} where {allowed:.3g} is allowed"
