"""A candidate's model with the reference's weights, which are there while it is constructed.

Many kernels pack their weights in the constructor. Values loaded after it has run would come too
late for them, so modules and parameters get their values in the moment when they become attributes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from evolve.worker.reference.parameters import cast_state


class ContractError(Exception):
    """The candidate's module or class does not have the task's interface."""


def construct(
    factory: type[nn.Module],
    seed: int,
    init: list[Any],
    state: Mapping[str, Tensor],
    place: torch.device,
) -> nn.Module:
    """A model of a candidate's class, in the floating type of the weights if they have one only.

    Its mode is the one that its constructor leaves it in.

    Raises:
        ContractError: it does not take the arguments, or has not the reference's parameters.
    """
    torch.manual_seed(seed)
    try:
        with torch.device(place), given_early(factory, state):
            model = factory(*init)
    except TypeError as error:
        # Of our call, or of something that the constructor does?
        inner = error.__traceback__ and error.__traceback__.tb_next
        if inner is None:
            raise ContractError(f"ModelNew(*get_init_inputs()) does not fit: {error}") from error
        raise
    floating = {value.dtype for value in state.values() if value.is_floating_point()}
    if len(floating) == 1:
        cast_state(model, floating.pop())
    own = model.state_dict()
    lacking = [name for name in state if name not in own]
    unlike = [name for name in state if name in own and not _fits(own[name], state[name])]
    if lacking or unlike:
        raise ContractError(
            "parameters go over from Model to ModelNew by name and shape (state_dict); "
            f"missing in ModelNew: {lacking[:8]}; of another shape: {unlike[:8]}"
        )
    model.to(place)
    model.load_state_dict(dict(state), strict=False)
    return model


@contextmanager
def given_early(model: type[nn.Module], state: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, instances of `model` have values of `state` from the first moment on.

    Attributes of another name or shape, and registered ones that are not assigned, stay unchanged.
    """
    own = vars(model).get("__setattr__")
    assign = model.__setattr__

    def assign_and_fill(self: nn.Module, name: str, value: Any) -> None:
        assign(self, name, value)
        if isinstance(value, nn.Module):
            _fill({f"{name}.{key}": tensor for key, tensor in value.state_dict().items()}, state)
        elif isinstance(value, nn.Parameter):
            _fill({name: value.detach()}, state)

    model.__setattr__ = assign_and_fill  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own is None:
            del model.__setattr__
        else:
            model.__setattr__ = own  # type: ignore[method-assign]


def _fits(own: Tensor, value: Tensor) -> bool:
    """Whether a parameter can be loaded; a lazy one takes any shape."""
    return is_lazy(own) or own.shape == value.shape


def _fill(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in state and not is_lazy(tensor) and state[name].shape == tensor.shape:
                tensor.copy_(state[name])
