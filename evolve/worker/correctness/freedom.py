"""Outcomes of which more than one is right: indices of tied scores, codes half-way between two.

Found from the operations of the reference: the choice of a sort or of a search for the largest
among scores that are equal up to rounding, and the rounding to integers of a value that lies at a
boundary up to its error. It takes some runs of the reference, so it waits until an outcome differs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.tolerance import computable, unit_roundoff

ROUNDINGS = 4.0  # of an operand's own type, and times the reference's own error of it
_MAX_SHIFT = 0.5  # of one step: a code next to the right one, and no other
_ROUNDING = frozenset(("round", "floor", "ceil", "trunc", "round_", "floor_", "ceil_", "trunc_"))
_MANY = frozenset(("topk", "sort", "argsort"))
_ONE = frozenset(("argmax", "argmin", "max", "min"))

Run = Callable[[torch.dtype | None, DispatchMode | None], list[Tensor]]
"""The reference's tensors in a type (None: as it is), each operation through a mode."""


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Scores, and the indices that an operation has chosen of them along `dim` (None: of all)."""

    name: str
    scores: Tensor
    dim: int | None
    indices: Tensor

    def chose(self, output: Tensor) -> bool:
        """Whether an output is these indices, or the first of them."""
        indices = self.indices
        is_part = self.name in _MANY and indices.dim() == output.dim()
        if is_part and self.dim is not None:
            size = min(output.shape[self.dim], indices.shape[self.dim])
            indices = indices.narrow(self.dim, 0, size)
        if indices.numel() != output.numel():
            return False
        return torch.equal(indices.reshape(output.shape).long(), output.long())


@dataclass(frozen=True, slots=True, eq=False)
class Freedom:
    """Further right values of one output.

    `low` and `high` bound values that rounding may move; `native` and `exact` are the ranking that
    an output of indices comes from, in the reference's type and in fp64.
    """

    low: Tensor | None = None
    high: Tensor | None = None
    native: Ranking | None = None
    exact: Ranking | None = None

    @property
    def rule(self) -> str:
        """The freedom in words; empty if there is none."""
        if self.native is not None:
            return f"indices of {self.native.name}: of scores equal up to rounding any may stand"
        if self.low is not None and self.high is not None and not torch.equal(self.low, self.high):
            return "codes: where a value lies at a boundary of rounding, the next is right too"
        return ""

    def allows(self, output: Tensor, own: Tensor) -> Tensor:
        """Elements that are right although they are not the reference's `own`."""
        if self.native is not None and self.exact is not None:
            return _same_scores(output, own, self.native, self.exact)
        if self.low is None or self.high is None or self.low.shape != output.shape:
            return torch.zeros_like(output, dtype=torch.bool)
        low, high = torch.minimum(self.low, self.high), torch.maximum(self.low, self.high)
        return (low <= output) & (output <= high) & (low < high)


def freedoms(run: Run, reference: Sequence[Tensor], dtype: torch.dtype | None) -> list[Freedom]:
    """Further right values of each tensor of an outcome.

    Args:
        run: Leaves model and inputs alone.
        reference: The outcome.
        dtype: The most exact type that the reference runs in.
    """
    native, exact = _Observed(), _Observed()
    run(None, native)
    if not native.rankings and not native.rounded:
        return [Freedom()] * len(reference)
    run(dtype, exact)
    ranked = [_ranking(own, native, exact) for own in reference]
    if not native.rounded:
        return ranked
    lows, highs = (run(dtype, _Shifted(native.rounded, sign)) for sign in (-1, 1))
    return [
        found if found.native is not None else Freedom(low, high)
        for found, low, high in zip(ranked, lows, highs, strict=True)
    ]


def _ranking(own: Tensor, native: "_Observed", exact: "_Observed") -> Freedom:
    if own.is_floating_point() or own.is_complex() or own.dtype is torch.bool or not own.numel():
        return Freedom()
    for some, other in zip(native.rankings, exact.rankings, strict=False):
        if some.scores.shape == other.scores.shape and some.chose(own):
            return Freedom(native=some, exact=other)
    return Freedom()


def _same_scores(output: Tensor, own: Tensor, native: Ranking, exact: Ranking) -> Tensor:
    """Elements whose scores are those of the reference's choice, no index chosen twice."""
    scores, ours = exact.scores.double(), native.scores.double()
    dim, shape = native.dim, output.shape
    if dim is None:
        scores, ours, dim = scores.reshape(-1), ours.reshape(-1), 0
        output, own = output.reshape(-1), own.reshape(-1)
    if output.dim() < scores.dim():  # of the largest, whose dimension is gone
        output, own = output.unsqueeze(dim), own.unsqueeze(dim)
    chosen, right = output.long(), own.long()
    inside = (chosen >= 0) & (chosen < scores.shape[dim])
    chosen = torch.where(inside, chosen, 0)
    off = (ours - scores).abs().nan_to_num(0.0, 0.0, 0.0)
    off = off.amax(dim, keepdim=True)
    some, wanted = scores.gather(dim, chosen), scores.gather(dim, right)
    unit = unit_roundoff(native.scores.dtype) if native.scores.is_floating_point() else 0.0
    size = torch.maximum(some.abs(), wanted.abs()).nan_to_num(0.0, 0.0, 0.0)
    close = (some - wanted).abs() <= ROUNDINGS * (unit * size + off)
    close |= (some == wanted) | (some.isnan() & wanted.isnan())
    found = close & inside
    if native.name in _MANY:
        found &= ~_repeated(chosen, dim)
    return found.reshape(shape)


def _repeated(indices: Tensor, dim: int) -> Tensor:
    """Indices that stand twice in a line."""
    values, order = indices.sort(dim)
    again = torch.zeros_like(indices, dtype=torch.bool)
    size = indices.shape[dim]
    if size > 1:
        pairs = values.narrow(dim, 1, size - 1) == values.narrow(dim, 0, size - 1)
        again.narrow(dim, 1, size - 1).copy_(pairs)
    return torch.zeros_like(again).scatter(dim, order, again)


class _Observed(DispatchMode):
    """Notes scores that are ranked, and values that are rounded to integers."""

    def __init__(self) -> None:
        super().__init__()
        self.rankings: list[Ranking] = []
        self.rounded: list[Tensor] = []

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        name = operation.overloadpacket.__name__
        if _rounds(name, arguments, options):
            self.rounded.append(arguments[0].detach().clone())
        outcome = operation(*arguments, **options)
        if name in _MANY or name in _ONE:
            self._note(name, operation, arguments, options, outcome)
        return outcome

    def _note(
        self,
        name: str,
        operation: Any,
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
        outcome: Any,
    ) -> None:
        given = {a.name: a.default_value for a in operation._schema.arguments}
        given |= dict(zip(given, arguments, strict=False)) | dict(options)
        indices = outcome[-1] if isinstance(outcome, tuple | list) else outcome
        scores, dim = given["self"], given.get("dim")
        is_index = isinstance(indices, Tensor) and indices.dtype is torch.int64
        if given.get("stable") or not is_index or not isinstance(scores, Tensor):
            return
        if dim is None and name in ("max", "min"):
            return  # the largest, not its place
        place = dim % max(1, scores.dim()) if isinstance(dim, int) else None
        if scores.dim():
            self.rankings.append(Ranking(name, scores.detach().clone(), place, indices.clone()))


def _rounds(name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Whether an operation makes integers of floating values."""
    operand = arguments[0] if arguments else None
    if not isinstance(operand, Tensor) or not operand.is_floating_point():
        return False
    if name == "_to_copy":
        dtype = options.get("dtype")
        is_integer = dtype is not None and not (dtype.is_floating_point or dtype.is_complex)
        return is_integer and dtype is not torch.bool
    return name in _ROUNDING


class _Shifted(DispatchMode):
    """Operands of rounding are moved up or down before it, by as much as they may be off."""

    def __init__(self, native: Sequence[Tensor], sign: int) -> None:
        super().__init__()
        self._native, self._sign = list(native), sign

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        name = operation.overloadpacket.__name__
        if not _rounds(name, arguments, options):
            return operation(*arguments, **options)
        operand = arguments[0]
        native = self._native.pop(0) if self._native else operand
        shift = self._sign * _most_off(operand, native)
        if name.endswith("_"):
            operand.add_(shift)
            return operation(*arguments, **options)
        return operation((operand.double() + shift).to(operand.dtype), *arguments[1:], **options)


def _most_off(exact: Tensor, native: Tensor) -> Tensor:
    """By how much an operand of rounding may be off; nothing if all of it is integral already."""
    values = exact.double()
    if torch.equal(values, values.round()):
        return torch.zeros_like(values)
    off = 0.0
    if native.shape == exact.shape:
        error = computable(native).double() - values
        error = torch.where(error.isfinite(), error, 0.0)
        off = float(error.square().mean().sqrt()) if error.numel() else 0.0
    most = ROUNDINGS * (unit_roundoff(native.dtype) * values.abs() + off)
    return most.nan_to_num(0.0, 0.0, 0.0).clamp(max=_MAX_SHIFT)
