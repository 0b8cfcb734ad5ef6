"""Running a reference: in its native precision, or in another type."""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from evolve.core.errors import FAILURES_OF_A_FUNCTION, UsageError
from evolve.worker.base import shortage
from evolve.worker.base.dispatch import DispatchMode
from evolve.worker.base.shortage import is_no_room
from evolve.worker.correctness.convolution import ByProducts
from evolve.worker.correctness.kinds import flat_outcome
from evolve.worker.ipc.messages import MAX_DIMS, MAX_TENSORS
from evolve.worker.ipc.pytree import flatten, map_tensors, resolved, tensors_of
from evolve.worker.reference.parameters import cast_module, type_within
from evolve.worker.reference.placing import CPU, moved
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code, task_values


def copied(model: nn.Module) -> nn.Module:
    """A copy, if the model can be copied."""
    try:
        return copy.deepcopy(model)
    except torch.OutOfMemoryError:
        raise  # is a RuntimeError too
    except failures():
        return model


def failures() -> tuple[type[Exception], ...]:
    """Errors of a reference in a type that it is not written for; Triton has errors of its own."""
    own = getattr(sys.modules.get("triton.errors"), "TritonError", RuntimeError)
    return (*FAILURES_OF_A_FUNCTION, own)


@torch.no_grad()
def evaluate_reference(task: str, model: nn.Module, inputs: list[Any]) -> Any:
    """The reference's outcome in native precision; the inputs are left as they are.

    Raises:
        UsageError: it raises, or gives something else than tensors.
    """
    with task_code(task, "Model.forward"), seeded(0), shortage_told():
        tree = model(*map_tensors(Tensor.clone, inputs))
    _require_sendable(task, flat_outcome(task, tree)[0])
    with task_values(task, "its outcome"):
        return map_tensors(lambda tensor: resolved(tensor.detach().clone()), tree)


def _require_sendable(task: str, outputs: list[Tensor]) -> None:
    """UsageError for an outcome without tensors, or one that a kernel's process could not send."""
    if not outputs:
        raise UsageError(f"task {task}: Model.forward returns no tensor. Return at least one.")
    if len(outputs) > MAX_TENSORS:
        raise UsageError(
            f"task {task}: Model.forward returns {len(outputs)} tensors, more than {MAX_TENSORS}. "
            "Join some, by torch.stack for one."
        )
    if (dims := max(output.dim() for output in outputs)) > MAX_DIMS:
        raise UsageError(
            f"task {task}: an output of Model.forward has {dims} dimensions, more than {MAX_DIMS}. "
            "Join some, by .flatten() for one."
        )


def forward_in(
    dtype: torch.dtype, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    """The outcome with floating operands of a type, each operation through these modes."""
    return where_room_is(partial(_made_in, dtype), model, inputs, *modes)


def where_room_is(
    run: Callable[..., list[Tensor]], model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    """`run(model, inputs, *modes)`; by the CPU if nothing else has memory for it.

    A GPU of 80 GB has not enough for an input and an output of 6 GB each in fp64, with what lies
    between them, beside a candidate that has both.
    """
    try:
        return run(model, inputs, *modes)
    except torch.OutOfMemoryError as error:
        place = tensors_of([inputs, list(model.parameters())])[0].device
        if not shortage.is_alone() or place == CPU:
            raise
        said = str(error)  # its frames hold gigabytes
    torch.cuda.empty_cache()
    try:
        made = run(copy.deepcopy(model).to(CPU), moved(CPU, inputs), *modes, _NoDraws())
    except failures() as error:  # if the model has tensors on its GPU, say: there is no memory then
        raise torch.OutOfMemoryError(f"{said} (by the CPU: {error})") from error
    return [output.to(place) for output in made]


class _NoDraws(DispatchMode):
    """An error where random numbers are drawn: another device draws others."""

    def run(self, operation: Any, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        if torch.Tag.nondeterministic_seeded in operation.tags:
            raise ValueError(f"{operation} draws random numbers")
        return operation(*arguments, **options)


def _made_in(
    dtype: torch.dtype, model: nn.Module, inputs: list[Any], *modes: DispatchMode
) -> list[Tensor]:
    operands = map_tensors(lambda tensor: in_type(dtype, tensor), inputs)
    with default_dtype(dtype):
        return forward(cast_module(copy.deepcopy(model), dtype), operands, *modes)


def in_type(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """A copy, in the type where it is floating, or in pairs of it where it is complex."""
    return tensor.to(type_within(tensor, dtype), copy=True)


def forward(model: nn.Module, inputs: list[Any], *modes: DispatchMode) -> list[Tensor]:
    """The outcome of a forward, each of whose operations goes through these, the last first."""
    # The modes inside: outside they would see a convolution's parts, and no convolution.
    with shortage_told(), seeded(0), ByProducts(), ExitStack() as around:
        for mode in modes:
            around.enter_context(mode)
        return [resolved(output.detach()) for output in flatten(model(*inputs))[0]]


@contextmanager
def shortage_told() -> Iterator[None]:
    """Shortages that libraries report in other words are told apart from a missing operation.

    Or for want of memory truth would be of fp32, as coarse as convolutions in TF32, and who is more
    exact would be wrong.
    """
    try:
        yield
    except RuntimeError as error:
        if is_no_room(error):
            raise torch.OutOfMemoryError(str(error)) from error
        raise


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Tensors that a forward creates by itself follow the precision of the run."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
