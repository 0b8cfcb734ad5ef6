"""Torch's settings of a whole process, as task files make them: they hold for their own code.

A file may say `torch.set_default_dtype(torch.float64)` when it is imported. One process judges many
tasks, so each file's settings are put in place while its code runs, and taken back after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Setting = tuple[Callable[[], Any], Callable[[Any], object]]


def _device() -> torch.device:
    """`torch.get_default_device` makes a tensor, which fails if there is no such device."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return torch.device("cpu") if context is None else context.device


def _set_device(device: torch.device) -> None:
    torch.set_default_device(None if device.type == "cpu" else device)


def _attribute(holder: Any, name: str) -> Setting:
    return lambda: getattr(holder, name), lambda value: setattr(holder, name, value)


_SETTINGS: tuple[Setting, ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (_device, _set_device),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    _attribute(torch.backends.cudnn, "allow_tf32"),
    _attribute(torch.backends.cudnn, "benchmark"),
    _attribute(torch.backends.cudnn, "deterministic"),
)  # `torch.backends.cuda.matmul.allow_tf32` is another name of the precision of products
_own: dict[str, dict[int, Any]] = {}  # by task: the settings that its file changes


def forget(task: str) -> None:
    """A task's file is imported anew: from settings that are not its own."""
    _own.pop(task, None)


@contextmanager
def imported(task: str) -> Iterator[None]:
    """Inside, a task's file is imported: settings that it changes are its own from then on."""
    before = _current()
    try:
        yield
    finally:
        changes = enumerate(zip(before, _current(), strict=True))
        _own[task] = {at: now for at, (old, now) in changes if old != now}


def put_of(task: str) -> None:
    """Make a task's own settings those of the process."""
    for at, value in _own.get(task, {}).items():
        _SETTINGS[at][1](value)


@contextmanager
def settings_of(task: str) -> Iterator[None]:
    """Inside, a task's own settings are in place; after it, all are as they were before."""
    before, grad = _current(), torch.is_grad_enabled()
    put_of(task)
    try:
        yield
    finally:
        for (get, put), value in zip(_SETTINGS, before, strict=True):
            if get() != value:
                put(value)
        torch._C._set_grad_enabled(grad)  # the judge's own matter: see `Conditions.grad`


def _current() -> list[Any]:
    return [get() for get, _ in _SETTINGS]
