"""How far outcomes of a reference move when its operands do."""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.correctness.convolution import CONVOLUTION, in_parts
from evolve.worker.correctness.fp64_truth import Truth
from evolve.worker.correctness.reference_runs import (
    default_dtype,
    forward,
    forward_in,
    in_type,
    where_room_is,
)
from evolve.worker.correctness.tolerance import motion_blocks, no_motion
from evolve.worker.ipc.pytree import components, map_tensors, tensors_of
from evolve.worker.reference.parameters import cast_module
from evolve.worker.reference.seeding import generator
from evolve.worker.reference.task_module import task_code

SENSITIVITY_STEP = 2.0**-24  # relative size of the least perturbation, that of an fp32 rounding
CUT_STEP = 2.0**-11  # half of the part that is cut off if an operand is read as TF32
# One alone may leave an outcome where it is by luck: of attention on large scores, where two keys
# nearly tie, it missed one case in forty, and honest kernels were taken for wrong ones.
PERTURBATIONS = 4
_ATEN = torch.ops.aten
_SCANS = frozenset((_ATEN.cumsum.default, _ATEN.cumprod.default, _ATEN.logcumsumexp.default))
_PRODUCTS = {  # where the first of two operands stands
    _ATEN.mm.default: 0, _ATEN.bmm.default: 0,
    _ATEN.addmm.default: 1, _ATEN.baddbmm.default: 1,
}  # fmt: skip
_NUDGED_AT_ONCE = 1 << 27  # elements
_MULTIPLIERS = 1 << 62  # of a hash of values
_SAMPLE = 4096  # elements that tell whether a tensor has few values
Perturbed = Callable[[str, nn.Module, list[Any], torch.Generator], list[Tensor]]
"""The outcome in fp64 when something moves at random."""


def moved_blocks(
    task: str,
    model: nn.Module,
    inputs: list[Any],
    truth: Truth,
    dtypes: list[torch.dtype],
    perturbed: Perturbed,
) -> list[Tensor]:
    """Root mean square over perturbations of how far each block of each output moves.

    Nothing moves if there is no fp64 truth.
    """
    squares = [no_motion(exact) for exact in truth.outputs]
    if truth.note:
        return squares
    place = next((tensor.device for tensor in tensors_of(inputs)), torch.device("cpu"))
    draws = generator(0, "sensitivity", place=place)
    for _ in range(PERTURBATIONS):  # one outcome at a time: each may take gigabytes
        moved = perturbed(task, model, inputs, draws)
        for total, exact, dtype in zip(squares, truth.outputs, dtypes, strict=True):
            total += motion_blocks(moved.pop(0), exact, dtype).square() / PERTURBATIONS
    return [total.sqrt() for total in squares]


def rounded(task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator) -> list[Tensor]:
    """When parameters, inputs and results of running sums move by one rounding each."""
    with task_code(task, "Model.forward"):
        return where_room_is(partial(_nudged, draws), model, inputs, _Scans(draws))


def _nudged(
    draws: torch.Generator, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    model = cast_module(copy.deepcopy(model), torch.float64)
    operands = map_tensors(lambda tensor: in_type(torch.float64, tensor), inputs)
    for moving in (*(parameter.data for parameter in model.parameters()), *tensors_of(operands)):
        if moving.is_floating_point():
            _nudge(moving, draws, SENSITIVITY_STEP)
    with default_dtype(torch.float64):
        return forward(model, operands, *modes)


def cut(task: str, model: nn.Module, inputs: list[Any], draws: torch.Generator) -> list[Tensor]:
    """When operands of products and convolutions move as those do that tensor cores read."""
    with task_code(task, "Model.forward"):
        return forward_in(torch.float64, model, inputs, _Products(draws))


class _Scans(DispatchMode):
    """In it, results of running sums and products are moved by a rounding.

    Each is rounded where it stands. Of the difference of two, which a state space model takes the
    exponential of, that may be far more than moving the terms between them does.
    """

    def __init__(self, draws: torch.Generator) -> None:
        super().__init__()
        self._draws = draws

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        outcome = operation(*arguments, **options)
        if operation in _SCANS and outcome.is_floating_point():
            _nudge(outcome, self._draws, SENSITIVITY_STEP)
        return outcome


class _Products(DispatchMode):
    """In it, operands of products and convolutions are moved as far as cutting moves them."""

    def __init__(self, draws: torch.Generator) -> None:
        super().__init__()
        self._draws = draws

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if operation is CONVOLUTION:  # whose operands may take gigabytes
            x, weight, *others = arguments
            weight = self._moved(weight)
            return in_parts(lambda x: operation(self._moved(x), weight, *others), x)
        first = _PRODUCTS.get(operation, len(arguments))
        operands = [self._moved(operand) for operand in arguments[first : first + 2]]
        return operation(*arguments[:first], *operands, *arguments[first + 2 :], **options)

    def _moved(self, operand: Tensor) -> Tensor:
        if not operand.is_floating_point():  # products of places are exact
            return operand
        moved = operand.clone()
        _nudge(moved, self._draws, CUT_STEP)
        return moved


def _nudge(tensor: Tensor, draws: torch.Generator, step: float) -> None:
    """Move all values by a relative step up or down at random, in place.

    If few values are there, equal ones move together as well, as a rounding moves them: its errors
    add up in a sum then.
    """
    if tensor.layout is not torch.strided:
        tensor = components(tensor)[-1]
    if not tensor.numel() or not tensor.dim():
        parts: tuple[Tensor, ...] = (tensor,)
    else:  # its own memory is to stay small beside a tensor of gigabytes
        rows = max(1, _NUDGED_AT_ONCE * tensor.shape[0] // tensor.numel())
        parts = tensor.split(rows)
    if _has_few_values(tensor):
        key = 2 * int(torch.randint(_MULTIPLIERS, (), generator=draws, device=draws.device)) + 1
        for part in parts:
            # A multiplicative hash: the highest bit depends on all bits of the value.
            _move(part, part.double().abs().view(torch.int64).mul_(key) < 0, step)
    for part in parts:
        is_up = torch.randint(0, 2, part.shape, generator=draws, dtype=torch.bool,
                              device=draws.device).to(part.device)  # fmt: skip
        _move(part, is_up, step)


def _move(part: Tensor, is_up: Tensor, step: float) -> None:
    part.mul_(torch.where(is_up, part.new_tensor(1 + step), part.new_tensor(1 - step)))


def _has_few_values(tensor: Tensor) -> bool:
    """By the first elements of its memory: a copy of all in order may be one of gigabytes."""
    start, held = tensor.storage_offset(), tensor.untyped_storage().nbytes() // tensor.itemsize
    some = tensor.as_strided((min(_SAMPLE, tensor.numel(), held - start),), (1,), start)
    return 0 < 2 * some.unique().numel() <= some.numel()
