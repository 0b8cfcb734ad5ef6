"""The states of torch's generators, kept while the same is computed twice."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


def generators() -> list[Tensor]:
    """The states of torch's generators, the CPU's first."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *cuda]


@contextlib.contextmanager
def drawing_from(states: list[Tensor]) -> Iterator[None]:
    """Within this block torch draws as from those states; afterwards as if nothing had been."""
    now = generators()
    _set(states)
    try:
        yield
    finally:
        _set(now)


def _set(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if states[1:]:
        torch.cuda.set_rng_state_all(states[1:])
