"""Named families of inputs, made from a task's own, to show faults that its usual values hide.

A family changes only floating tensors, and keeps what the task's own values look like they keep:
integral values, rows that sum to one, symmetric and structurally zero matrices, bounded ranges and
signs. A family that would leave the support does not apply.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.correctness.reference_precision import precision_of
from evolve.worker.correctness.tolerance import computable
from evolve.worker.ipc.pytree import map_tensors, tensors_of
from evolve.worker.reference.seeding import generator

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

TASK_FAMILY = "task"
_PROBE_SEED = 0x5EED
_SAMPLE = 1 << 16  # values looked at for a support
_LIGHT_TAIL = 2.0  # range over deviation: 1.73 for uniform values, above 3 for normal ones
_NEAR_ZERO = 1e-2  # of the deviation: uniform values from zero on hardly ever reach it
_ZERO_SHARE = 0.05  # more exact zeros than this are a structure (triangular, masked)
_MIN_NUMEL = 8  # smaller tensors are settings, not data
_CORNER = 16  # rows and columns that tell of most matrices that they are not symmetric


@dataclass(frozen=True, slots=True)
class Support:
    """The apparent range of the values of one tensor.

    `low` and `high` are bounds that hold (infinite where there seem to be none). `scalable`: values
    may be made smaller; `rows_free`: each row by its own factor; `fillable`: any element may be
    replaced by another value of the range.
    """

    low: float
    high: float
    deviation: float
    scalable: bool
    rows_free: bool
    fillable: bool

    @property
    def unbounded(self) -> bool:
        return self.high == torch.inf

    def contains(self, tensor: Tensor) -> bool:
        low, high = torch.stack(tensor.aminmax()).tolist()
        return bool(self.low <= low and high <= self.high)


def support_of(tensor: Tensor) -> Support | None:
    """The support that a tensor's values show; None if they must not be changed at all."""
    if not tensor.is_floating_point() or tensor.numel() < _MIN_NUMEL:
        return None
    sample = tensor.reshape(-1)[:: max(1, tensor.numel() // _SAMPLE)].double()
    # All is read at once: for each reading a GPU is waited for, which others use as well.
    facts = (*tensor.aminmax(), _is_fixed(tensor, sample), sample.mean(), sample.std(),
             (sample == 0).double().mean(), _is_corner_symmetric(tensor))  # fmt: skip
    low, high, is_fixed, middle, deviation, zeros, symmetric = torch.stack(
        [fact.double() for fact in facts]
    ).tolist()
    if not -torch.inf < low < high < torch.inf or is_fixed:
        return None
    if max(high - middle, middle - low) > _LIGHT_TAIL * deviation:
        low, high = 0.0 if low >= 0 else -torch.inf, 0.0 if high <= 0 else torch.inf
    elif 0 < low < _NEAR_ZERO * deviation:
        low = 0.0
    scalable = low <= 0 <= high
    symmetric = bool(symmetric) and torch.equal(tensor, tensor.mT)
    structured = zeros > _ZERO_SHARE
    return Support(
        low,
        high,
        deviation,
        scalable=scalable,
        rows_free=scalable and not symmetric,
        fillable=not structured and not symmetric,
    )


def _is_corner_symmetric(tensor: Tensor) -> Tensor:
    """Whether square matrices may be symmetric: to compare all of them reads gigabytes."""
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return tensor.new_zeros((), dtype=torch.bool)
    corner = tensor[..., :_CORNER, :_CORNER]
    return (corner == corner.mT).all()


def _is_fixed(tensor: Tensor, sample: Tensor) -> Tensor:
    """Integral values (labels, masks), and rows of equal sum or norm (simplices, directions)."""
    is_integral = (sample == sample.round()).all()
    if tensor.dim() == 0 or not 2 <= tensor.shape[-1] <= _SAMPLE:
        return is_integral
    rows = tensor.reshape(-1, tensor.shape[-1])[:64].double()
    sizes = torch.stack([rows.sum(dim=1), rows.norm(dim=1)])
    if rows.shape[0] == 1:
        is_equal = (sizes[:, 0] - 1).abs() < 1e-3
    else:
        is_equal = sizes.std(dim=1) < 3e-4 * sizes.mean(dim=1).abs()
    return is_integral | is_equal.any()


def _scaled_up(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    return x * 32 if support.scalable and support.unbounded else None


def _scaled_down(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    return x / 8 if support.scalable else None


def _heterogeneous_rows(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    return _uneven(x, support, draws, 6 if support.unbounded else 0, 9 if support.unbounded else 3)


def _shrunk_rows(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    return _uneven(x, support, draws, 0, 9)


def _uneven(
    x: Tensor, support: Support, draws: torch.Generator, top: int, span: int
) -> Tensor | None:
    """Each row times its own power of two, from `top` down by up to `span`."""
    if not support.rows_free or x.dim() < 2:
        return None
    shares = torch.rand((*x.shape[:-1], 1), generator=draws, device=x.device)
    shares = (1.5 * shares - 0.25).clamp_(0, 1)  # a sixth of the rows at either end
    # Kernels that let the first or last row stand for all have to fail: with it the smallest, what
    # is made for it overflows elsewhere.
    flat = shares.view(-1)
    flat[0], flat[-1], flat[flat.numel() // 2] = 0, 0, 1
    return x * torch.exp2(span * (shares - 1) + top).to(x)


def _ties(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.fillable:
        return None
    picks = torch.randint(x.numel(), (5,), generator=draws, device=x.device)
    levels = x.reshape(-1)[picks].sort().values
    middles = (levels[1:] + levels[:-1]) / 2
    return levels[torch.bucketize(x.contiguous(), middles)]


def _sparse(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.fillable or not support.scalable or x.dim() == 0:
        return None
    kept = torch.rand(x.shape, generator=draws, device=x.device) < 1 / 32
    kept[..., -1] = True  # the place that a loop with a wrong bound leaves out
    return torch.where(kept, x, x / 32)


def _moved(deviations: float) -> "Change":
    def change(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
        free = support.fillable and support.unbounded
        return x + deviations * support.deviation if free else None

    return change


def _far_below(x: Tensor, support: Support, _: torch.Generator) -> Tensor | None:
    """Values at which a running maximum that starts at zero leaves nothing of any exponential."""
    free = support.fillable and support.scalable and support.unbounded
    return 4 * (x - 32 * support.deviation) if free else None


def _one_hot_large(x: Tensor, support: Support, draws: torch.Generator) -> Tensor | None:
    if not support.fillable or not support.scalable or x.dim() == 0:
        return None
    size = 32 * support.deviation if support.unbounded else support.high
    rows, last = x.shape[:-1], x.shape[-1] - 1
    places = torch.randint(last + 1, rows, generator=draws, device=x.device)
    shares = torch.rand(rows, generator=draws, device=x.device)
    # Two thirds at the ends, which loops with wrong bounds leave out.
    places = torch.where(shares < 1 / 3, 0, torch.where(shares > 2 / 3, last, places)).unsqueeze(-1)
    return (x / 16).scatter(-1, places, size)


Change = Callable[[Tensor, Support, torch.Generator], Tensor | None]


@dataclass(frozen=True, slots=True)
class Family:
    """How a tensor is changed (None: it stays as it is); `second` is for every other floating one.

    `even` says that the terms of a sum stay different and of one order of magnitude, so that their
    rounding errors cancel as a random walk does; repeated and far apart terms do not.
    A family that `stands_in` for another is for tasks to which the other does not apply.
    """

    change: Change
    even: bool = True
    second: Change | None = None
    stands_in: str = ""


FAMILIES: dict[str, Family] = {
    TASK_FAMILY: Family(lambda x, support, draws: None),
    "scaled_up": Family(_scaled_up, even=False),
    "scaled_down": Family(_scaled_down),
    "heterogeneous_rows": Family(_heterogeneous_rows, even=False),
    "shrunk_rows": Family(_shrunk_rows, even=False, stands_in="heterogeneous_rows"),
    "ties": Family(_ties, even=False),
    "sparse": Family(_sparse),
    "shifted": Family(_moved(4)),
    "opposed": Family(_moved(-6), second=_moved(6)),
    "far_below": Family(_far_below, even=False),
    "one_hot_large": Family(_one_hot_large, even=False),
}


def family_named(name: str) -> Family:
    """The family of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in FAMILIES:
        raise UsageError(f"input family {name!r} is unknown; choose one of {', '.join(FAMILIES)}.")
    return FAMILIES[name]


def transform(inputs: list[Any], family: str, seed: int) -> list[Any]:
    """The inputs in a family; a function of the inputs, the family and the seed."""
    named = family_named(family)
    if family == TASK_FAMILY:  # at once: there is nothing to change or to draw
        return list(inputs)
    changes = itertools.cycle((named.change, named.second or named.change))
    draws = {
        place: generator(seed, "family", family, place=place)
        for place in {tensor.device for tensor in tensors_of(inputs)}
    }

    def changed(x: Tensor) -> Tensor:
        return _transformed(x, next(changes), draws[x.device]) if x.is_floating_point() else x

    return list(map_tensors(changed, inputs))


def _transformed(tensor: Tensor, change: Change, draws: torch.Generator) -> Tensor:
    if tensor.layout is not torch.strided:
        return tensor
    values = computable(tensor)
    support = support_of(values)
    changed = change(values, support, draws) if support else None
    if support is None or changed is None or not support.contains(changed):
        return tensor
    if values is not tensor and float(changed.abs().max()) > torch.finfo(tensor.dtype).max:
        return tensor
    return changed.to(tensor.dtype)


def applicable_families(case: "LoadedCase") -> tuple[str, ...]:
    """Families that change something and in which the reference is finite and precise enough.

    Precise enough is what `precision_of` says. Ties are left out where outputs are integers,
    because which of two equals comes first is seldom defined.
    """
    model, own = case.model(_PROBE_SEED), case.arguments(_PROBE_SEED)
    names = [TASK_FAMILY]
    for name, family in FAMILIES.items():
        if name == TASK_FAMILY or family.stands_in in names:
            continue
        if _applies(case, model, own, name):
            names.append(name)
    return tuple(names)


def _applies(case: "LoadedCase", model: nn.Module, own: list[Any], family: str) -> bool:
    inputs = transform(own, family, _PROBE_SEED)
    pairs = zip(tensors_of(inputs), tensors_of(own), strict=True)
    if all(changed is before for changed, before in pairs):
        return False
    inputs += case.state(_PROBE_SEED)
    try:
        reference = case.reference(model, inputs)
    except UsageError:
        return False  # the reference itself refuses these values
    if family == "ties" and not all(outcome.is_floating_point() for outcome in reference):
        return False
    truth = case.truth(model, inputs, reference)
    is_finite = all(bool(computable(outcome).isfinite().all()) for outcome in reference)
    precision = precision_of(case.task, model, inputs, reference, truth.outputs, truth.note)
    return is_finite and precision is not None
