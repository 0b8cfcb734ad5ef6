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

    def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or threading.get_ident() != thread:
            return original(module, *args, **kwargs)
        return observer.module(module, args, kwargs, original)

    nn.Module.__call__ = call  # type: ignore[method-assign]
    for home, names in FUNCTIONS.items():
        for name in names:
            setattr(home, name, _watched(home, name, observer, thread))


def _watched(home: Any, name: str, observer: Observer, thread: int) -> Original:
    original: Original = getattr(home, name)
    whole = f"{home.__name__}.{name}"

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or threading.get_ident() != thread:
            return original(*args, **kwargs)
        return observer.function(whole, args, kwargs, original)

    return call
