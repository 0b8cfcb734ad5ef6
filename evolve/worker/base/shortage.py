"""Errors that say that a device has no memory left, and whether any can still become free."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_SHORTAGES = ("out of memory", "alloc failed", "allocation failed")  # cuBLAS and cuDNN: the latter

_ALONE = ContextVar("alone", default=False)


@contextmanager
def alone(is_so: bool = True) -> Iterator[None]:
    """In it nothing else of this judge has memory that could become free by waiting.

    Or some has all the same, if that is not so for a while.
    """
    token = _ALONE.set(is_so)
    try:
        yield
    finally:
        _ALONE.reset(token)


def is_alone() -> bool:
    """Whether this is within `alone`: who finds no memory has to do with less."""
    return _ALONE.get()


def is_short_of_memory(error: BaseException) -> bool:
    """Whether it is for want of the device's memory, in our code or in the task's."""
    return isinstance(error, torch.OutOfMemoryError) or isinstance(
        error.__cause__, torch.OutOfMemoryError
    )


def is_no_room(error: BaseException) -> bool:
    """The same, also if the driver, a library or another process says so."""
    said = str(error).lower().replace("_", " ")
    return is_short_of_memory(error) or any(words in said for words in _SHORTAGES)
