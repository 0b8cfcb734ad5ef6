"""The reference's weights for a model that is still under construction.

Many kernels pack their weights in the constructor. What is loaded after it has run would come too
late for them, so modules and parameters get their values in the moment when they become attributes.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


@contextmanager
def given_early(model: type[nn.Module], state: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, instances of `model` have values of `state` from the first moment on.

    What has another name or shape, and what is registered and not assigned, is left as it is.
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


def _fill(tensors: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in state and state[name].shape == tensor.shape:
                tensor.copy_(state[name])
