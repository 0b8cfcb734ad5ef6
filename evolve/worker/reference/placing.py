"""Making tensors on the device under test by code that was written without it in mind."""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from evolve.worker.ipc.pytree import map_tensors
from evolve.worker.reference.seeding import seed_torch

CPU = torch.device("cpu")


def _unchanged(made: Any) -> Any:
    return made


def made_on(
    place: torch.device,
    make: Callable[[], Any],
    seed: int,
    examined: Callable[[Any], Any] = _unchanged,
) -> Any:
    """The result of `examined(make())`, its tensors on `place`.

    On a GPU, factory functions such as `torch.randn` draw there: the inputs of a large task take
    milliseconds instead of seconds. Code that insists on the CPU is run again without that, from
    the same seed, and its tensors are moved.

    `examined` runs outside of `torch.device`, inside of which each operation on a tensor would go
    through a function of Python.
    """
    if place == CPU:
        return examined(make())
    try:
        with torch.device(place):
            made = make()
    except (RuntimeError, TypeError):
        seed_torch(seed)
        made = make()
    return moved(place, examined(made))


def moved(place: torch.device, made: Any) -> Any:
    """A module or a tree of tensors, on `place`."""
    if isinstance(made, nn.Module):
        parts = itertools.chain(made.parameters(), made.buffers())
        # `Module.to` cannot take parameters without values (`extent`), wherever they are.
        return made if all(part.device == place for part in parts) else made.to(place)
    return map_tensors(lambda tensor: tensor if tensor.device == place else tensor.to(place), made)
