"""Whether calls of a reference depend on those before them by something else than its state."""

from typing import TYPE_CHECKING

import torch
from torch import nn

from evolve.core.errors import UsageError
from evolve.worker.correctness.calls.differences import same
from evolve.worker.correctness.calls.observed import (
    OTHER_SEED,
    SEED,
    Observed,
    attributes_of,
    is_changed,
    listed,
    observed_call,
    observed_new,
    where_different,
)
from evolve.worker.correctness.calls.written import other_values
from evolve.worker.correctness.reference_runs import copied
from evolve.worker.reference.conditions import Conditions, bind, named_state

if TYPE_CHECKING:
    from evolve.worker.correctness.cases import LoadedCase

_MAX_SPEC = 60  # characters


def require_no_memory(case: "LoadedCase", seen: Observed, conditions: Conditions) -> None:
    """UsageError if a call depends on those before it by something else than its state."""
    model = observed_new(case, conditions).model
    other = called_again(case, model, conditions, OTHER_SEED)
    if other.spec != seen.spec and _forms(other) == _forms(seen):
        raise UsageError(
            f"task {case.task}: Model.forward returns a number or a text that depends on values: "
            f"{seen.spec[:_MAX_SPEC]} for some inputs, {other.spec[:_MAX_SPEC]} for others (T: a "
            "tensor). Return it as a tensor."
        )
    if not where_different(seen, called_again(case, copied(model), conditions, SEED)):
        return
    if where := where_different(seen, called_again(case, model, conditions, SEED)):
        raise UsageError(
            f"task {case.task}: Model.forward remembers something: a second call on the same "
            f"inputs differs in {where}. Keep state in buffers (self.register_buffer) of a fixed "
            "shape, or pass it as an argument."
        )
    raise UsageError(
        f"task {case.task}: a copy of Model (copy.deepcopy) has another outcome than Model, as it "
        "has with hooks that keep the module in a variable. Let forward pass values by returning "
        "them."
    )


def computed_anew(case: "LoadedCase", conditions: Conditions, seen: Observed) -> list[str]:
    """Tensors besides parameters and buffers that each call gives new values, unseen the old.

    Raises:
        UsageError: a call changes one, and its outcome depends on the old values.
    """
    model = case.made(SEED, conditions)
    old = dict(attributes_of(model))
    found = [
        name for name, now in attributes_of(seen.model)
        if name in old and not same(old[name], now)
    ]  # fmt: skip
    if not found:
        return []
    for name in found:  # the weight of `weight_norm`, say; it may lie in a parameter's memory
        owner, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(owner), attribute, other_values(old[name]))
    is_unknown = case.check is not None
    if is_unknown or where_different(seen, observed_call(case, model, conditions, SEED)):
        raise UsageError(
            f"task {case.task}: Model.forward changes {listed(found)}, which "
            f"{'is no buffer' if len(found) == 1 else 'are no buffers'}, so a candidate's cannot "
            "be compared. Make it one: self.register_buffer(name, tensor)."
        )
    return found


def called_again(
    case: "LoadedCase", model: nn.Module, conditions: Conditions, seed: int, draws: int = 0
) -> Observed:
    """A further call of a model that has its first state, on the inputs of this seed.

    Buffers that its calls have registered, or given another shape, stay.
    """
    before = named_state(case.made(SEED, conditions))
    for name, now in named_state(model).items():
        if is_changed(before, name, now.detach()):
            bind(model, [name], [before[name].detach()])
    return observed_call(case, model, conditions, seed, draws)


def _forms(seen: Observed) -> list[torch.Size]:
    return [tensor.shape for tensor in (*seen.inputs, *seen.outputs)]
