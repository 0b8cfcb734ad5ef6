"""What a task expects on given inputs: its own outcome, the fp64 truth, and the error allowed."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import UsageError
from evolve.worker.blocks import OutputBudget, output_budget
from evolve.worker.parameters import cast_module
from evolve.worker.reduction import ReductionTrace
from evolve.worker.seeding import generator, seeded
from evolve.worker.taskmodule import task_code
from evolve.worker.trees import cast_floating, flatten, map_tensors, tensors_of

SENSITIVITY_STEP = 2.0**-24  # relative size of the perturbation, that of an fp32 rounding


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth:
    """Outputs computed in fp64; `note` says where that was not possible, else empty."""

    outputs: list[Tensor]
    note: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Expected:
    """All that `judge` needs to know about one set of inputs.

    `tree` is the reference's outcome as it came, `reference` its tensors, `spec` its nesting;
    `truth` the same tensors from fp64; `budgets` the error allowed for each floating output (None
    for the others); `reduction` the longest reduction seen; `note` a fallback that was needed.
    """

    tree: Any
    reference: list[Tensor]
    spec: str
    truth: list[Tensor]
    budgets: list[OutputBudget | None]
    reduction: int
    note: str


@torch.no_grad()
def expect(task: str, accumulation: str, model: nn.Module, inputs: list[Any]) -> Expected:
    """Runs the reference in native precision, in fp64, and in fp64 on perturbed operands.

    The third run measures the conditioning: how far outputs move when every floating operand moves
    by one fp32 rounding. An honest kernel in another order of operations may be off by that much.
    """
    with ReductionTrace() as trace:
        tree = evaluate_reference(task, model, inputs)
    reference, spec = flatten(tree)
    truth = evaluate_truth(task, model, inputs)
    moved = _perturbed_truth(task, model, inputs) if not truth.note else truth.outputs
    budgets = [
        output_budget(native, exact, near, trace.length, accumulation, SENSITIVITY_STEP)
        for native, exact, near in zip(reference, truth.outputs, moved, strict=True)
    ]
    return Expected(
        tree=tree,
        reference=reference,
        spec=spec,
        truth=truth.outputs,
        budgets=budgets,
        reduction=trace.length,
        note=truth.note,
    )


@torch.no_grad()
def evaluate_reference(task: str, model: nn.Module, inputs: list[Any]) -> Any:
    """The reference's outcome in native precision; the inputs are left as they are.

    Raises:
        UsageError: it raises, or gives something else than tensors.
    """
    with task_code(task, "Model.forward"), seeded(0):
        tree = model(*map_tensors(Tensor.clone, inputs))
    try:
        tensors, _ = flatten(tree)
    except TypeError as error:
        raise UsageError(
            f"task {task}: of what Model.forward returns, {error}. "
            "Return a tensor, or a tuple, list or dict of tensors."
        ) from error
    if not tensors:
        raise UsageError(f"task {task}: Model.forward returns no tensor. Return at least one.")
    return map_tensors(lambda tensor: tensor.detach().clone(), tree)


@torch.no_grad()
def evaluate_truth(task: str, model: nn.Module, inputs: list[Any]) -> Truth:
    """Outputs of the reference with parameters, inputs and new tensors in fp64.

    Where an operation does not exist in fp64, the best that there is stands in (fp32 for a half
    precision reference, else the native outcome) and `note` says so.
    """
    native: list[Tensor] | None = None
    try:
        outputs = _forward(_double(model), cast_floating(inputs, torch.float64))
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        outputs, note = _fallback(task, model, inputs, error)
        return Truth(outputs=outputs, note=note)
    native = flatten(evaluate_reference(task, model, inputs))[0]
    for index, (exact, own) in enumerate(zip(outputs, native, strict=True)):
        if own.is_floating_point() and exact.dtype != torch.float64:
            note = f"output {index} stays {exact.dtype} when the reference runs in fp64"
            return Truth(outputs=[_doubled(output) for output in outputs], note=note)
    return Truth(outputs=outputs)


def _fallback(
    task: str, model: nn.Module, inputs: list[Any], error: Exception
) -> tuple[list[Tensor], str]:
    reason = f"the reference does not run in fp64 ({type(error).__name__}: {str(error)[:120]})"
    try:
        single = cast_module(copy.deepcopy(model), torch.float32)
        outputs = _forward(single, cast_floating(inputs, torch.float32))
        note = f"{reason}; judged by its outcome in fp32"
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        outputs = flatten(evaluate_reference(task, model, inputs))[0]
        note = f"{reason}; judged by its native outcome"
    return [_doubled(output) for output in outputs], note


def _perturbed_truth(task: str, model: nn.Module, inputs: list[Any]) -> list[Tensor]:
    draws = generator(0, "sensitivity")
    model = _double(model)
    operands = cast_floating(inputs, torch.float64)
    moved = map_tensors(lambda tensor: _nudged(tensor, draws), operands)
    for parameter in model.parameters():
        if parameter.is_floating_point():
            parameter.data = _nudged(parameter.data, draws)
    with task_code(task, "Model.forward"):
        return _forward(model, moved)


def _nudged(tensor: Tensor, draws: torch.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    signs = torch.randint(0, 2, tensor.shape, generator=draws, dtype=torch.int8)
    return tensor * (1 + SENSITIVITY_STEP * (2 * signs.to(tensor) - 1))


def _double(model: nn.Module) -> nn.Module:
    return cast_module(copy.deepcopy(model), torch.float64)


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _forward(model: nn.Module, inputs: list[Any]) -> list[Tensor]:
    first = next((t for t in tensors_of(inputs) if t.is_floating_point()), None)
    with _default_dtype(first.dtype if first is not None else torch.float64), seeded(0):
        outputs, _ = flatten(model(*map_tensors(Tensor.clone, inputs)))
    return [output.detach().clone() for output in outputs]


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a forward creates by itself follow the precision of the run."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
