"""NaN and infinities: inputs that have some, and how an outcome treats them.

Suites of the field never feed any, and honest kernels drop NaN: a maximum by `tl.maximum` or
`fmaxf` does, as do comparisons in a ReLU. So an outcome that differs from the reference here alone
is named by a label and in the feedback, and is wrong only if the task says `NAN = "equal"`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.core.evaluation import Label, Status
from evolve.worker.correctness.compare import Checked, Judgement, judge_structure
from evolve.worker.correctness.input_families import support_of
from evolve.worker.correctness.oracle import Expected
from evolve.worker.correctness.tolerance import computable, real
from evolve.worker.ipc.pytree import flatten, map_tensors
from evolve.worker.reference.seeding import generator

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

DROPS_NAN = "drops_nan"
OTHER_NON_FINITE = "other_non_finite"
FAMILY = "non_finite"
_VALUES = (torch.nan, torch.inf, -torch.inf)
_SHARE = 256  # elements for each value that is not finite
_MOST = 8  # of each


def with_non_finite(inputs: list[Any], seed: int) -> list[Any] | None:
    """The inputs with a few NaN and infinities in each floating tensor; None if none takes any.

    Tensors whose values are structured (integral, simplices, masks) stay as they are.
    """
    changed = 0

    def replaced(tensor: Tensor) -> Tensor:
        nonlocal changed
        if tensor.layout is not torch.strided or not tensor.is_floating_point():
            return tensor
        if tensor.itemsize < 2 or support_of(tensor) is None:
            return tensor
        changed += 1
        draws = generator(seed, FAMILY, str(changed), place=tensor.device)
        count = min(_MOST, max(1, tensor.numel() // _SHARE))
        picks = torch.randperm(tensor.numel(), generator=draws, device=tensor.device)
        values = torch.tensor(_VALUES, dtype=tensor.dtype, device=tensor.device)
        found = tensor.clone().flatten()
        found[picks[: 3 * count]] = values.repeat(count)[: tensor.numel()]
        return torch.empty_like(tensor).copy_(found.view(tensor.shape))

    found = list(map_tensors(replaced, inputs))
    return found if changed else None


def expected_pattern(case: "LoadedCase", model: nn.Module, inputs: list[Any]) -> Expected | None:
    """The reference's outcome on such inputs, of which the places of NaN and infinities count.

    Returns:
        None if it is not stable: the reference refuses them, or has others in fp64.
    """
    try:
        tree = case.tree(model, inputs)
    except UsageError:
        return None
    reference, spec = flatten(tree)
    truth = case.truth(model, inputs, reference)
    floating = [one for one in reference if one.is_floating_point()]
    if not truth.runs or not floating:
        return None
    pairs = zip(reference, truth.outputs, strict=True)
    if not all(_is_same(own, exact) for own, exact in pairs if own.is_floating_point()):
        return None
    return Expected(
        tree=tree,
        reference=reference,
        spec=spec,
        truth=truth.outputs,
        budgets=[None] * len(reference),
        reduction=0,
        note=truth.note,
        widen=list,
    )


def judge_pattern(
    case: Checked, outputs: Sequence[Tensor], spec: str, expected: Expected, inputs: list[Any]
) -> Judgement:
    """Whether floating outputs have NaN and infinities in the places of the reference's.

    It has the signature of `compare.judge`; other values are not looked at.
    """
    if (structure := judge_structure(outputs, spec, expected)) is not None:
        return structure
    for index, (output, own) in enumerate(zip(outputs, expected.reference, strict=True)):
        if own.is_floating_point() and not _is_same(output, own):
            label, difference = _difference(output, own)
            said = f"{expected.name(index)} {difference}"
            return Judgement(Status.WRONG_VALUE, said, label=label)
    return Judgement(Status.CORRECT)


def label_of(case: str, verdict: Judgement) -> Label:
    """The label of an outcome that differs, by its values; its text may be the candidate's own."""
    said = f"case {case}, on inputs with NaN and infinities: {verdict.feedback}"
    return Label(DROPS_NAN if verdict.label == DROPS_NAN else OTHER_NON_FINITE, said)


def _pattern(values: Tensor) -> Tensor:
    """0 for finite values, and another number for each of NaN and both infinities."""
    values = computable(real(values))
    return values.isnan() * 1 + values.isposinf() * 2 + values.isneginf() * 3


def _is_same(some: Tensor, other: Tensor) -> bool:
    return torch.equal(_pattern(some), _pattern(other))


def _difference(output: Tensor, own: Tensor) -> tuple[str, str]:
    """A label, and how the output differs from the reference's own."""
    ours, theirs = _pattern(output), _pattern(own)
    missing = int(((theirs == 1) & (ours != 1)).sum())
    if missing:
        return DROPS_NAN, f"lacks {missing} of {int((theirs == 1).sum())} NaN of the reference"
    added = int(((ours == 1) & (theirs != 1)).sum())
    if added:
        return OTHER_NON_FINITE, f"has {added} NaN that the reference does not have"
    return OTHER_NON_FINITE, f"differs in {int((ours != theirs).sum())} infinities"
