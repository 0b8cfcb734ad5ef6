"""Outcomes of a reference in fp64, which outputs are compared with."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evolve.worker.correctness.reference_runs import failures, forward_in
from evolve.worker.reference.parameters import type_within


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth:
    """Outputs computed in fp64; `note` says where that was not possible, else empty.

    `runs` says whether the reference runs in fp64 at all, if only in parts.
    """

    outputs: list[Tensor]
    note: str = ""
    runs: bool = True


@torch.no_grad()
def run_in_fp64(model: nn.Module, inputs: list[Any]) -> list[Tensor] | str:
    """Outputs with parameters, inputs and new tensors in fp64; or why there are none."""
    try:
        return forward_in(torch.float64, model, inputs)
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except failures() as error:
        return f"{type(error).__name__}: {str(error)[:120]}"


@torch.no_grad()
def evaluate_truth(model: nn.Module, inputs: list[Any], reference: list[Tensor]) -> Truth:
    """See `as_truth`."""
    return as_truth(run_in_fp64(model, inputs), model, inputs, reference)


@torch.no_grad()
def as_truth(
    found: list[Tensor] | str, model: nn.Module, inputs: list[Any], reference: list[Tensor]
) -> Truth:
    """The truth, from the result of `run_in_fp64`.

    If an operation does not exist in fp64, the best that there is stands in (fp32 for a half
    precision reference, else the native outcome `reference`) and `note` says so.
    """
    if isinstance(found, str):
        return _fallback(model, inputs, reference, found)
    shapes = [[one.shape for one in several] for several in (found, reference)]
    if shapes[0] != shapes[1]:  # of a view as bytes, or if it depends on values
        return _fallback(model, inputs, reference, "RuntimeError: its outcome has another shape")
    for index, (exact, own) in enumerate(zip(found, reference, strict=True)):
        is_number = own.is_floating_point() or own.is_complex()
        if is_number and exact.dtype != type_within(own, torch.float64):
            note = f"output {index} stays {exact.dtype} when the reference runs in fp64"
            return Truth(outputs=[_doubled(output) for output in found], note=note)
    return Truth(outputs=found)


def _fallback(model: nn.Module, inputs: list[Any], reference: list[Tensor], why: str) -> Truth:
    reason = f"the reference does not run in fp64 ({why})"
    try:
        outputs = forward_in(torch.float32, model, inputs)
        if [one.shape for one in outputs] != [one.shape for one in reference]:
            raise RuntimeError("another shape")
        note = f"{reason}; judged by its outcome in fp32"
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except failures():
        outputs, note = reference, f"{reason}; judged by its native outcome"
    return Truth(outputs=[_doubled(output) for output in outputs], note=note, runs=False)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.to(type_within(tensor, torch.float64))
