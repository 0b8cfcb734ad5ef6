"""Calls of modules and of torch's functions, given to an observer first."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from evolve.capture.own_functions import OwnFunctions, gets_tensors, original_of
from evolve.capture.parts import FUNCTIONS

Original = Callable[..., Any]


class Observer(Protocol):
    """It makes each call, by `run(*args, **kwargs)` or otherwise, and returns its outcome."""

    def module(self, module: nn.Module, args: Any, kwargs: Any, run: Original) -> Any:
        """A call of a module; `run` takes the module first."""

    def function(self, name: str, args: Any, kwargs: Any, run: Original) -> Any:
        """A call of a function by this name, with its module."""


def interpose(observer: Observer) -> OwnFunctions:
    """From now on calls of this thread come to the observer, for the rest of this process.

    Those of the user's own functions too, if the script is executed with the names that the
    returned object gives.

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
        (home, name): (getattr(home, name), _of_torch(home, name, observer, is_hidden))
        for home, names in FUNCTIONS.items()
        for name in names
    }
    _set(watched, 1)
    own = OwnFunctions(lambda name, one: _watched(name, one, observer, is_hidden, gets_tensors))
    own.watch_imports()
    _show_originals_to_script(watched, own)
    return own


_Watched = dict[tuple[Any, str], tuple[Original, Original]]


def _set(watched: _Watched, which: int) -> None:
    for (home, name), functions in watched.items():
        setattr(home, name, functions[which])


def _show_originals_to_script(watched: _Watched, own: OwnFunctions) -> None:
    """torch.jit.script reads the text of functions, and knows some of torch's by identity."""
    script = torch.jit.script

    @functools.wraps(script)
    def call(*args: Any, **kwargs: Any) -> Any:
        _set(watched, 0)
        try:
            with own.originals():
                return script(*map(original_of, args), **kwargs)
        finally:
            _set(watched, 1)

    torch.jit.script = call


def _is_transformed() -> bool:
    """Whether tensors are stand-ins: under torch.jit.trace, torch.vmap, torch.func.grad."""
    return torch.jit.is_tracing() or torch._C._functorch.peek_interpreter_stack() is not None


def _of_torch(home: Any, name: str, observer: Observer, is_hidden: Callable[[], bool]) -> Original:
    original: Original = getattr(home, name)
    whole = f"{home.__name__}.{name}"
    call = _watched(whole, original, observer, is_hidden, lambda args, kwargs: True)
    return functools.wraps(original)(call)


def _watched(
    name: str,
    original: Original,
    observer: Observer,
    is_hidden: Callable[[], bool],
    is_part: Callable[[Any, Any], bool],
) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or is_hidden() or not is_part(args, kwargs):
            return original(*args, **kwargs)
        return observer.function(name, args, kwargs, original)

    return call
