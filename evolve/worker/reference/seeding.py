"""Seeded randomness that leaves the process's generators as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
import torch

from evolve.core.digest import framed_digest


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds torch, numpy and `random` inside the block and restores all of them after it."""
    python_state = random.getstate()
    numpy_state = numpy.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            numpy.random.seed(seed % 2**32)
            random.seed(seed)
            yield
    finally:
        random.setstate(python_state)
        numpy.random.set_state(numpy_state)


def derived_seed(seed: int, *purpose: str) -> int:
    """A seed (63 bits) for one purpose, so that purposes do not share their draws."""
    return int(framed_digest(str(seed), *purpose)[:16], 16) >> 1


def generator(seed: int, *purpose: str, place: str | torch.device = "cpu") -> torch.Generator:
    """A generator of its own for one purpose, on the device where its draws are used."""
    return torch.Generator(place).manual_seed(derived_seed(seed, *purpose))
