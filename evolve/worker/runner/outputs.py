"""Outputs of calls: plain dense tensors, by their addresses."""

from typing import Any

import torch

from evolve.worker.ipc import messages
from evolve.worker.ipc.pytree import flatten, map_tensors


class OutputError(Exception):
    """An output is no plain dense tensor."""


class EmptyCall(torch.nn.Module):
    """Makes an output like one that is there, and launches the least that torch can."""

    def __init__(self, output: Any) -> None:
        super().__init__()
        self._like = output

    def forward(self, *_: Any) -> Any:
        made = map_tensors(torch.empty_like, self._like)
        torch.zeros(1)
        return made


def addresses(output: Any) -> list[int]:
    """Of every tensor of an output."""
    if type(output) is torch.Tensor:
        return [output.data_ptr()]
    return [tensor.data_ptr() for tensor in flatten(output)[0]]


def plain_tensors(output: Any) -> tuple[list[torch.Tensor], str]:
    """The tensors of an output, and its structure.

    Raises:
        OutputError: one is no plain dense tensor.
    """
    try:
        tensors, spec = flatten(output)
    except TypeError as error:
        raise OutputError(str(error)) from error
    if len(tensors) > messages.MAX_TENSORS:
        raise OutputError(f"an output has {len(tensors)} tensors, more than {messages.MAX_TENSORS}")
    for tensor in tensors:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise OutputError(f"an output is a {type(tensor).__name__}, not a plain torch.Tensor")
        if tensor.layout is not torch.strided or tensor.dtype not in messages.DTYPES:
            raise OutputError(f"an output is {tensor.layout} of {tensor.dtype}")
        if tensor.dim() > messages.MAX_DIMS:
            raise OutputError(
                f"an output has {tensor.dim()} dimensions, more than {messages.MAX_DIMS}"
            )
        if tensor.is_conj() or tensor.is_neg():
            raise OutputError(
                "an output is a lazy conjugate; return output.resolve_conj().resolve_neg()"
            )
    return tensors, spec
