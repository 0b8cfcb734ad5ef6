"""Tasks that are the backward pass of a module: `Model.forward` gives gradients."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Backward(nn.Module):
    """In front of a module's class, makes its call give gradients.

    The first argument is the gradient of the output; the others are those of the module. The result
    has the gradient of every floating argument, then of every parameter, zeros where there is none.
    """

    def forward(self, grad_output: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            given = [x.detach().requires_grad_() if _has_gradient(x) else x for x in inputs]
            leaves = [x for x in given if _has_gradient(x)]
            leaves += self.requires_grad_().parameters()  # before the call: it records what to do
            output = super().forward(*given)
            return torch.autograd.grad(
                output, leaves, grad_output, allow_unused=True, materialize_grads=True
            )


def with_gradient(model: type[nn.Module], arguments: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """The inputs of a module, detached, behind a random gradient of the output they lead to.

    Args:
        model: class of the module.
        arguments: of its constructor.
        inputs: of its forward.
    """
    given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    with torch.no_grad():
        output = model(*arguments).to(torch.get_default_device())(*given)
    return [torch.randn_like(output), *given]


def _has_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
