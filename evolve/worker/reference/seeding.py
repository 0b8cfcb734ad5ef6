"""Seeded randomness that leaves the process's generators as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy
import torch

from evolve.core.digest import framed_digest


class RandomState(NamedTuple):
    """States of the generators of `random`, numpy and torch: the CPU's first, then every GPU's."""

    python: Any
    numpy: Any
    torch: list[torch.Tensor]


def random_state() -> RandomState:
    """The process's generators as they are now; of GPUs only where torch has begun to use them."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    states = [torch.get_rng_state(), *cuda]
    return RandomState(random.getstate(), numpy.random.get_state(), states)


@contextmanager
def drawing_from(state: RandomState) -> Iterator[None]:
    """Draws inside the block are as from that state, those after it as if the block were not."""
    now = random_state()
    _set(state)
    try:
        yield
    finally:
        _set(now)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch, numpy and `random` inside the block and restores all of them after it."""
    now = random_state()
    try:
        seed_torch(seed)
        numpy.random.seed(seed % 2**32)
        random.seed(seed)
        yield
    finally:
        _set(now)


def seed_torch(seed: int) -> None:
    """Seeds torch's generators, of GPUs only where torch has begun to use them.

    `torch.manual_seed` keeps a stack trace for every kind of accelerator that is not there, which
    took a quarter of the time in which a judge of several tasks holds `task_lock`.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def is_same_state(one: RandomState, other: RandomState) -> bool:
    """Whether nothing was drawn between two readings of the generators' states."""
    pairs = zip(one.torch, other.torch, strict=False)  # a GPU's begins when it is first used
    return (
        one.python == other.python
        and all(map(numpy.array_equal, one.numpy, other.numpy))
        and all(torch.equal(mine, others) for mine, others in pairs)
    )


def _set(state: RandomState) -> None:
    random.setstate(state.python)
    numpy.random.set_state(state.numpy)
    torch.set_rng_state(state.torch[0])
    if state.torch[1:]:
        torch.cuda.set_rng_state_all(state.torch[1:])


def derived_seed(seed: int, *purpose: str) -> int:
    """A seed (63 bits) for one purpose, so that purposes do not share their draws."""
    return int(framed_digest(str(seed), *purpose)[:16], 16) >> 1


def generator(seed: int, *purpose: str, place: str | torch.device = "cpu") -> torch.Generator:
    """A generator of its own for one purpose, on the device where its draws are used."""
    return torch.Generator(place).manual_seed(derived_seed(seed, *purpose))
