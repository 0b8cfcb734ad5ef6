"""Weights of a reference: randomised so that no special value can be assumed, and cast."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from evolve.worker.reference.seeding import generator

_CONSTANT_SPREAD = 0.25  # of a parameter whose elements are all equal (unit gains)
_ZERO_SPREAD = 0.1  # of a parameter that is all zero (biases)
_OTHER_SPREAD = 0.1  # of one that was drawn at random already


@torch.no_grad()
def randomise(model: nn.Module, seed: int) -> None:
    """Perturbs every floating parameter and running statistic in place.

    Factors are log-normal, so signs, zeros in a structured weight and positive variances stay; only
    tensors that are zero everywhere become normal. Other buffers (masks, tables) stay as they are.
    """
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point():
            _perturb(parameter, seed, name)
    for name, buffer in model.named_buffers():
        if name.split(".")[-1] in ("running_mean", "running_var") and buffer.is_floating_point():
            _perturb(buffer, seed, name)


def _perturb(values: Tensor, seed: int, name: str) -> None:
    """With memory for one more of it in float32, since that may be gigabytes."""
    if values.numel() == 0:
        return
    draws = generator(seed, "parameter", name, place=values.device)
    noise = torch.randn(values.shape, generator=draws, device=values.device).to(values)
    low, high = values.aminmax()
    if low == high == 0:
        values.copy_(noise.mul_(_ZERO_SPREAD))
    else:
        spread = _CONSTANT_SPREAD if low == high else _OTHER_SPREAD
        values.mul_(noise.mul_(spread).exp_())


def cast_module(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Casts floating and complex parameters, buffers and plain tensor attributes in place."""
    if any(isinstance(value, FakeTensor) for value in (*model.parameters(), *model.buffers())):
        _cast_without_values(model, dtype)
    else:
        cast_state(model, dtype)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, Tensor) and type_within(value, dtype) is not value.dtype:
                setattr(module, name, value.to(type_within(value, dtype)))
    return model


def cast_state(model: nn.Module, dtype: torch.dtype) -> None:
    """The same for parameters and buffers only; `Module.to` would cut imaginary parts off."""
    model._apply(lambda value: value.to(type_within(value, dtype)))


def type_within(tensor: Tensor, dtype: torch.dtype) -> torch.dtype:
    """Of a tensor where floating numbers have this type: complex ones consist of two of them.

    There is little arithmetic for complex numbers of half precision: they stay as they are.
    """
    if tensor.is_floating_point():
        return dtype
    if tensor.is_complex() and dtype in (torch.float32, torch.float64):
        return dtype.to_complex()
    return tensor.dtype


def _cast_without_values(model: nn.Module, dtype: torch.dtype) -> None:
    """By hand: `Module.to` exchanges the storage of parameters, and these have none."""
    for module in model.modules():
        holders: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for holder in holders:
            for name, value in holder.items():
                if value is not None:
                    holder[name] = value.to(type_within(value, dtype))
