"""Under which conditions a reference and its candidates are called.

They are found by the judge (`evolve.worker.correctness.effects`) and told to every process that
calls a model, so that all do it in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evolve.worker.ipc.pytree import map_tensors

MODES = ("constructed", "eval", "train")
"""Of a module: as its constructor leaves it, or as the task's `MODE` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """How a model is called.

    Attributes:
        mode: One of `MODES`.
        grad: Whether gradients are recorded.
        writes: Whether a call writes to its inputs, the state among them.
        trains: Whether the reference is in training mode then.
        state: Names of parameters and buffers that a call changes or returns. Each call gets them
            in the memory of its inputs, behind its arguments, so that no call sees the writes of
            another and the effect can be read where it belongs.
    """

    mode: str = MODES[0]
    grad: bool = False
    trains: bool = False
    writes: bool = False
    state: tuple[str, ...] = ()

    def apply(self, model: nn.Module) -> nn.Module:
        """The model in this mode, with or without gradients of its parameters."""
        if self.mode != MODES[0]:
            model.train(self.mode == "train")
        return model if self.grad else model.requires_grad_(False)

    def apply_like(self, model: nn.Module) -> nn.Module:
        """The same for a candidate, which need not repeat an `eval()` of the reference."""
        return self.apply(model if self.trains else model.eval())


USUAL = Conditions()


def named_state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, those that `state_dict` leaves out too."""
    return {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }


def bind(model: nn.Module, names: Sequence[str], values: Sequence[Tensor]) -> None:
    """Let parameters and buffers have these values, in this memory; the objects stay the same."""
    known = named_state(model)
    for name, value in zip(names, values, strict=True):
        known[name].data = value


def write_back(model: nn.Module, names: Sequence[str], values: Sequence[Tensor]) -> None:
    """Into the memory given, where a call has put another tensor in the place of one."""
    known = named_state(model)
    for name, value in zip(names, values, strict=True):
        now = known[name].detach()
        if not _share_memory(now, value):
            value.copy_(now)


def _share_memory(some: Tensor, other: Tensor) -> bool:
    """Whether one is the other; asked of tensors without values too, which have no address."""
    return (
        some.untyped_storage()._cdata == other.untyped_storage()._cdata
        and some.storage_offset() == other.storage_offset()
        and some.stride() == other.stride()
    )


def _apart(model: nn.Module, names: Sequence[str], outcome: Any) -> Any:
    """The outcome, which keeps its memory if the next call binds other memory to state in it."""
    if not names:
        return outcome
    known = named_state(model)
    bound = {id(known[name]) for name in names}
    return map_tensors(lambda one: one.detach() if id(one) in bound else one, outcome)


class Bound(nn.Module):
    """A model whose last argument is its state; for the processes that are timed."""

    def __init__(self, model: nn.Module, conditions: Conditions) -> None:
        super().__init__()
        self.model = model
        self.conditions = conditions

    def forward(self, *arguments: Any) -> Any:
        return call(self.model, self.conditions, arguments)

    def unbound(self, arguments: Sequence[Any]) -> tuple[nn.Module, Sequence[Any]]:
        """The model itself, and these without the state behind them."""
        return self.model, arguments[:-1] if self.conditions.state else arguments


def call(model: Any, conditions: Conditions, arguments: Sequence[Any]) -> Any:
    """One forward under the conditions; `model` is called, and has the state.

    Gradients are of no use to the judge once forward has returned.
    """
    names = conditions.state
    values: Sequence[Tensor] = arguments[-1] if names else ()
    own = arguments[:-1] if names else arguments
    bind(model, names, values)
    with torch.set_grad_enabled(conditions.grad or torch.is_grad_enabled()):
        outcome = model(*own)
    with torch.no_grad():
        write_back(model, names, values)
    return _apart(model, names, outcome)


def is_needed(conditions: Conditions) -> bool:
    """Whether a model has to be called in another way than by its arguments alone."""
    return bool(conditions.state) or conditions.grad


def wrapped(model: nn.Module, conditions: Conditions) -> nn.Module:
    """The model, to be called with the state behind its arguments if a call changes any."""
    return Bound(model, conditions) if is_needed(conditions) else model
