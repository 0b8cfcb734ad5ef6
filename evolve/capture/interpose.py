"""Calls of modules and of torch's functions, given to an observer first."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from evolve.capture.parts import FUNCTIONS

Original = Callable[..., Any]


class Observer(Protocol):
    """It makes each call, by `run(*args, **kwargs)` or otherwise, and returns its outcome."""

    def module(self, module: nn.Module, args: Any, kwargs: Any, run: Original) -> Any:
        """A call of a module; `run` takes the module first."""

    def function(self, name: str, args: Any, kwargs: Any, run: Original) -> Any:
        """A call of a function by this name, with its module."""


def interpose(observer: Observer) -> None:
    """From now on calls of this thread come to the observer, for the rest of this process.

    Not those inside of a graph that torch.compile makes: a compiled module is one call.
    """
    thread = threading.get_ident()
    original = nn.Module.__call__
    is_hidden = lambda: threading.get_ident() != thread or _is_transformed()  # noqa: E731

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_hidden():
            return original(module, *args, **kwargs)
        return observer.module(module, args, kwargs, original)

    nn.Module.__call__ = call  # type: ignore[method-assign]
    watched = {
        (home, name): (getattr(home, name), _watched(home, name, observer, is_hidden))
        for home, names in FUNCTIONS.items()
        for name in names
    }
    _set(watched, 1)
    _show_originals_to_script(watched)


_Watched = dict[tuple[Any, str], tuple[Original, Original]]


def _set(watched: _Watched, which: int) -> None:
    for (home, name), functions in watched.items():
        setattr(home, name, functions[which])


def _show_originals_to_script(watched: _Watched) -> None:
    """torch.jit.script reads the text of functions, and knows some of torch's by identity."""
    script = torch.jit.script

    @functools.wraps(script)
    def call(*args: Any, **kwargs: Any) -> Any:
        _set(watched, 0)
        try:
            return script(*args, **kwargs)
        finally:
            _set(watched, 1)

    torch.jit.script = call


def _is_transformed() -> bool:
    """Whether tensors are stand-ins: under torch.jit.trace, torch.vmap, torch.func.grad."""
    return torch.jit.is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None


def _watched(home: Any, name: str, observer: Observer, is_hidden: Callable[[], bool]) -> Original:
    original: Original = getattr(home, name)
    whole = f"{home.__name__}.{name}"

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_hidden():
            return original(*args, **kwargs)
        return observer.function(whole, args, kwargs, original)

    return call
