"""One call of a reference on copies: all that it leaves, and how two calls differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from evolve.worker.correctness.calls.differences import first_difference, same
from evolve.worker.correctness.kinds import flat_outcome, require_outputs
from evolve.worker.ipc.pytree import flatten, map_tensors, tensors_of
from evolve.worker.reference.conditions import Conditions, call, named_state
from evolve.worker.reference.seeding import seeded
from evolve.worker.reference.task_module import task_code

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

SEED, OTHER_SEED = 0xEFFEC7, 0xEFFEC8
_MAX_NAMES = 4


@dataclass(slots=True, eq=False)
class Observed:
    """One call: its model, inputs and state afterwards, and its outputs."""

    model: nn.Module
    outputs: list[Tensor]
    spec: str
    inputs: list[Tensor]
    state: dict[str, Tensor]


def observed_new(case: "LoadedCase", conditions: Conditions, draws: int = 0) -> Observed:
    """One call of a new model on new inputs."""
    return observed_call(case, case.made(SEED, conditions), conditions, SEED, draws)


def observed_call(
    case: "LoadedCase", model: nn.Module, conditions: Conditions, seed: int, draws: int = 0
) -> Observed:
    """One call of a model on new inputs of this seed, in the random state of the seed `draws`."""
    given = cloned(case.arguments(seed))
    outputs, spec = flatten(forward_of(case, model, given, conditions, draws))
    state = {name: value.detach() for name, value in named_state(model).items()}
    return Observed(model, [output.detach() for output in outputs], spec, tensors_of(given), state)


def forward_of(
    case: "LoadedCase",
    model: nn.Module,
    inputs: list[Any],
    conditions: Conditions,
    draws: int = 0,
) -> Any:
    """What a model returns for these inputs, which the call may write to.

    Raises:
        UsageError: it fails, or returns tensors that the judge does not take.
    """
    with task_code(case.task, "Model.forward"), seeded(draws):
        outcome = call(model, replace(conditions, state=()), inputs)
    require_outputs(case.task, flat_outcome(case.task, outcome)[0])
    return outcome


def cloned(inputs: list[Any]) -> list[Any]:
    """Inputs of their own for a call that may write to them."""
    return list(map_tensors(Tensor.clone, inputs))


def is_changed(before: Mapping[str, Tensor], name: str, now: Tensor) -> bool:
    """Whether a call has changed a part of the state, which had values for it before."""
    if name not in before or before[name].shape != now.shape:
        return False
    return not same(before[name].detach(), now)


def where_different(first: Observed, again: Observed) -> str:
    """The first difference between two calls in prose; empty if there is none."""
    if first.spec != again.spec:
        return "the nesting of its outputs"
    if where := first_difference(first.outputs, again.outputs):
        return where
    if first_difference(first.inputs, again.inputs):
        return "its writes to inputs"
    if first_difference(list(first.state.values()), list(again.state.values())):
        return "its writes to state"
    return ""


def attributes_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors of a model that are neither parameters nor buffers."""
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, Tensor) and value.layout is torch.strided:
                yield (f"{prefix}.{name}" if prefix else name), value.detach()


def listed(names: Sequence[str]) -> str:
    """The first few names, and the number of the others."""
    shown = ", ".join(names[:_MAX_NAMES])
    more = len(names) - _MAX_NAMES
    return f"{shown} and {more} more" if more > 0 else shown
