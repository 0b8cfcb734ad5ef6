"""What operands of products a reference reads, told by how far it is off its outcome in fp64."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from evolve.worker.correctness.sensitivity import CUT_STEP, cut
from evolve.worker.correctness.tolerance import relative_error, unit_roundoff
from evolve.worker.ipc.pytree import tensors_of
from evolve.worker.reference.seeding import generator

Precision = Literal["full", "tf32"]

_ALIKE = 4.0  # errors by one cause: cut bits have one sign, those that are moved at random have not


def precision_of(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    reference: list[Tensor],
    truth: list[Tensor],
    note: str = "",
) -> Precision | None:
    """The precision of products' operands; None if the reference is too far off to judge by.

    In most blocks its error against fp64 has to stay below the root of the unit roundoff: that of
    its type, or that of TF32 if it is off as far as operands of products are that are cut to it.
    A GPU cuts those of convolutions unless told otherwise.

    Args:
        task: Its name.
        model: The reference.
        inputs: Of one call.
        reference: Its native outcome for them.
        truth: That in fp64.
        note: Why the truth is not of fp64; empty if it is.
    """
    pairs = list(zip(reference, truth, strict=True))
    coarse = [at for at, (own, exact) in enumerate(pairs) if not _is_precise(own, exact)]
    if not coarse:
        return "full"
    if note or any(reference[at].dtype is not torch.float32 for at in coarse):
        return None
    place = next((tensor.device for tensor in tensors_of(inputs)), torch.device("cpu"))
    moved = cut(task, model, inputs, generator(0, "precision", place=place))
    return "tf32" if all(_is_cut(*pairs[at], moved[at]) for at in coarse) else None


def _is_precise(reference: Tensor, truth: Tensor) -> bool:
    if reference.numel() == 0 or not (reference.is_floating_point() or reference.is_complex()):
        return True
    most = unit_roundoff(reference.dtype) ** 0.5
    return bool(relative_error(reference, truth).median() <= most)


def _is_cut(reference: Tensor, truth: Tensor, moved: Tensor) -> bool:
    """Whether it is off about as far as the outcome moves when operands are cut."""
    off, cut_off = (float(relative_error(some, truth).median()) for some in (reference, moved))
    return cut_off / _ALIKE <= off <= min(_ALIKE * cut_off, CUT_STEP**0.5)
