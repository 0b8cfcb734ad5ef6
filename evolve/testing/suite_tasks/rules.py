"""The suites' own rules of correctness; `suite_check` of a task file is one of them.

They decide the verdict that is stored beside the strict one, and nothing else. Sources: the
evaluators of the suites that each names.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from evolve.testing.checks import Check, pairs

_RIGHT = (True, "")
_EXACT = (0.0, 0.0)


def completes() -> Check:
    """TritonBench compares the text that two programs print, and its tests print nothing."""
    return lambda *_: _RIGHT


def assert_close() -> Check:
    """KernelBench-X: 1e-5 in single and double precision, 5e-3 in half, integers exact."""
    half = (5e-3, 5e-3)
    return by_type((1e-5, 1e-5), {"float16": half, "bfloat16": half}, equal_nan=True)


def by_type(
    usual: tuple[float, float],
    types: Mapping[str, tuple[float, float]] | None = None,
    *,
    integers: tuple[float, float] = _EXACT,
    equal_nan: bool = False,
    finite: bool = False,
) -> Check:
    """All elements are close, as `torch.allclose` has it.

    Args:
        usual: relative and absolute tolerance of floating tensors.
        types: the same of certain types, by name.
        integers: the same of integers; booleans are exact.
        equal_nan: NaN is close to NaN.
        finite: no element may be infinite or NaN.
    """

    def allowed(own: Tensor) -> tuple[float, float]:
        name = str(own.dtype).removeprefix("torch.")
        if own.dtype is torch.bool:
            return _EXACT
        of_kind = usual if own.is_floating_point() or own.is_complex() else integers
        return (types or {}).get(name, of_kind)

    def close(some: Tensor, own: Tensor) -> bool:
        wide = torch.complex128 if own.is_complex() else torch.float64
        x, y = some.to(wide), own.to(wide)
        if finite and not bool(x.isfinite().all()):
            return False
        return torch.allclose(x, y, *allowed(own), equal_nan=equal_nan)

    return _each(close)


def precision(cosine_sim: float, l1_relative: float, rmse: float) -> Check:
    """KernelBench-X, quantised tasks: least cosine, largest relative L1 error and RMSE."""

    def close(some: Tensor, own: Tensor) -> bool:
        x, y = some.float().flatten(), own.float().flatten()
        norms = float(x.norm()), float(y.norm())
        if min(norms) < 1e-12:
            cosine = float(max(norms) < 1e-12)
        else:
            cosine = float(torch.nn.functional.cosine_similarity(x, y, 0))
        off = (x - y).abs()
        relative = float(off.sum() / y.abs().sum().clamp_min(1e-12))
        squares = float(off.square().mean().sqrt())
        return cosine >= cosine_sim and relative <= l1_relative and squares <= rmse

    return _each(close)


def matched(
    atol: float,
    rtol: float,
    ratio: float,
    *,
    either: bool = False,
    cap: float | None = None,
    negative_infinity: bool = False,
) -> Check:
    """flashinfer-bench and SOL-ExecBench: enough elements are close, and all are finite.

    Args:
        atol: absolute tolerance.
        rtol: relative tolerance.
        ratio: least share of the elements that are close.
        either: one of the two tolerances is enough (flashinfer-bench), not their sum.
        cap: the largest absolute error of any element.
        negative_infinity: it may stand where the reference has it.
    """

    def close(some: Tensor, own: Tensor) -> bool:
        x, y = some.float().flatten(), own.float().flatten()
        if negative_infinity:
            kept = ~((x == -torch.inf) & (y == -torch.inf))
            x, y = x[kept], y[kept]
        if not bool((x.isfinite() & y.isfinite()).all()):
            return False
        if not x.numel():
            return True
        off = (x - y).abs()
        if either:
            far = (off > atol) & (off / (y.abs() + 1e-8) > rtol)
        else:
            far = off > atol + rtol * y.abs()
        is_capped = cap is None or float(off.max()) <= cap
        return is_capped and 1.0 - float(far.double().mean()) >= ratio

    return _each(close)


def own(check_implementation: Callable[..., Any]) -> Check:
    """GPU MODE: the verdict of the problem's own checker on the input and the output."""

    def check(output: Any, reference: Any, inputs: list[Any]) -> tuple[bool, str]:
        del reference
        found = check_implementation(inputs[0], output)
        is_right, why = found if isinstance(found, tuple) else (not found, found)
        return bool(is_right), str(why or "")

    return check


def _each(close: Callable[[Tensor, Tensor], bool]) -> Check:
    """Every tensor of an outcome has the reference's shape and type, and is close to it."""

    def check(output: Any, reference: Any, _: list[Any]) -> tuple[bool, str]:
        for name, some, own in pairs(output, reference):
            if some.shape != own.shape or some.dtype != own.dtype:
                return False, f"{name} has another shape or type"
            if not close(some, own):
                return False, f"{name} is further off than the suite allows"
        return _RIGHT

    return check
