"""Functions of the user's own modules; calls of them are given to an observer first."""

import functools
import importlib.machinery
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from evolve.tasks.values import is_installed, literal

_ORIGINAL = "_evolve_original"
_OWN_PACKAGES = ("evolve", "operators", "archives")
_Wrapper = Callable[[str, FunctionType], FunctionType]


def original_of(value: Any) -> Any:
    """The function that a wrapper is of; any other value itself."""
    return vars(value).get(_ORIGINAL, value) if isinstance(value, FunctionType) else value


class OwnFunctions:
    """The user's functions at the top level of modules; those that get tensors are observed.

    Args:
        wrapper: gives the wrapper of a function of the user's, from its name and itself.
    """

    def __init__(self, wrapper: _Wrapper) -> None:
        self._wrapper = wrapper
        self._namespaces: list[dict[str, Any]] = []

    def watch_imports(self) -> None:
        """From now on the user's modules bind wrappers of their functions."""
        loader: Any = importlib.machinery.SourceFileLoader
        original = loader.exec_module

        def exec_module(own: Any, module: ModuleType) -> None:
            original(own, module)
            root = module.__name__.partition(".")[0]
            if root not in _OWN_PACKAGES and not is_installed(module.__name__):
                names = vars(module)
                self._namespaces.append(names)
                names |= {name: self._wrap(names, one) for name, one in names.items()}

        loader.exec_module = exec_module

    def binder_of(self, module: ModuleType) -> Callable[[str], None]:
        """A function that a script's code calls with every name that it has bound in its module."""
        names = vars(module)
        self._namespaces.append(names)

        def bind(name: str) -> None:
            if isinstance(value := names.get(name), FunctionType):
                names[name] = self._wrap(names, value)

        return bind

    @contextmanager
    def originals(self) -> Iterator[None]:
        """Within this block modules bind the user's functions instead of their wrappers."""
        wrappers = [
            (names, {name: one for name, one in names.items() if is_wrapper(one)})
            for names in self._namespaces
        ]
        for names, wrapped in wrappers:
            names |= {name: original_of(one) for name, one in wrapped.items()}
        try:
            yield
        finally:
            for names, wrapped in wrappers:
                names |= wrapped

    def _wrap(self, names: dict[str, Any], value: Any) -> Any:
        """The wrapper of a function that a module defines; any other value itself."""
        if not isinstance(value, FunctionType) or is_wrapper(value):
            return value
        if value.__module__ != names["__name__"] or "<" in value.__qualname__:
            return value
        inner = inspect.unwrap(value)
        if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
            return value
        wrapper = self._wrapper(f"{value.__module__}.{value.__qualname__}", value)
        vars(wrapper)[_ORIGINAL] = value
        return functools.update_wrapper(wrapper, value)


def is_wrapper(value: Any) -> bool:
    """Whether a value is the wrapper of a function of the user's."""
    return isinstance(value, FunctionType) and _ORIGINAL in vars(value)


def gets_tensors(args: Any, kwargs: Any) -> bool:
    """Whether a call's arguments are tensors, one at least, and plain values."""
    leaves = list(_leaves([args, kwargs]))
    return any(isinstance(one, Tensor) for one in leaves) and all(
        isinstance(one, Tensor | torch.dtype | torch.device) or literal(one) is not None
        for one in leaves
    )


def _leaves(tree: Any) -> Iterator[Any]:
    """Values of nested containers; one that holds itself is a value, and not a plain one."""
    return _leaves_within(tree, set())


def _leaves_within(tree: Any, around: set[int]) -> Iterator[Any]:
    if type(tree) not in (list, tuple, dict):
        yield tree
        return
    if id(tree) in around:
        yield object()
        return
    around.add(id(tree))
    for one in tree.values() if type(tree) is dict else tree:
        yield from _leaves_within(one, around)
    around.remove(id(tree))
