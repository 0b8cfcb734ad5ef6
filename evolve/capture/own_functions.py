"""Functions of the user's own modules; calls of them are given to an observer first."""

import functools
import importlib.machinery
import inspect
from collections.abc import Callable, Iterator, MutableMapping
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor

from evolve.tasks.values import is_installed, literal

_ORIGINAL = "_evolve_original"
_OWN_PACKAGES = ("evolve", "operators", "archives")
_Wrapped = Callable[[str, FunctionType], FunctionType]


def original_of(value: Any) -> Any:
    """The user's function, if the value stands for it in a module of the user's."""
    return vars(value).get(_ORIGINAL, value) if isinstance(value, FunctionType) else value


class OwnFunctions:
    """The user's functions at the top level of modules; those that get tensors are observed.

    Args:
        wrapped: from a name and a function of the user's, the function that stands for it.
    """

    def __init__(self, wrapped: _Wrapped) -> None:
        self._wrapped = wrapped
        self._namespaces: list[dict[str, Any]] = []

    def watch_imports(self) -> None:
        """From now on the user's modules bind functions that stand for theirs."""
        loader: Any = importlib.machinery.SourceFileLoader
        original = loader.exec_module

        def exec_module(own: Any, module: ModuleType) -> None:
            original(own, module)
            root = module.__name__.partition(".")[0]
            if root not in _OWN_PACKAGES and not is_installed(module.__name__):
                names = vars(module)
                self._namespaces.append(names)
                names |= {name: self._standing_for(names, one) for name, one in names.items()}

        loader.exec_module = exec_module

    def names_of(self, module: ModuleType) -> MutableMapping[str, Any]:
        """Local names for a script's execution, which bind them in its module too."""
        self._namespaces.append(vars(module))
        return _Names(vars(module), self._standing_for)

    def show_originals(self) -> Callable[[], None]:
        """Bind the user's functions themselves; what is returned undoes that."""
        changed: list[tuple[dict[str, Any], str, Any]] = []
        for names in self._namespaces:
            changed += [(names, name, one) for name, one in names.items() if is_stand_in(one)]
        for names, name, one in changed:
            names[name] = original_of(one)
        return lambda: [names.update({name: one}) for names, name, one in changed].clear()

    def _standing_for(self, names: dict[str, Any], value: Any) -> Any:
        if not isinstance(value, FunctionType) or is_stand_in(value):
            return value
        if value.__module__ != names["__name__"] or "<" in value.__qualname__:
            return value
        inner = inspect.unwrap(value)
        if inspect.isgeneratorfunction(inner) or inspect.iscoroutinefunction(inner):
            return value
        wrapped = self._wrapped(f"{value.__module__}.{value.__qualname__}", value)
        vars(wrapped)[_ORIGINAL] = value
        return functools.update_wrapper(wrapped, value)


def is_stand_in(value: Any) -> bool:
    """Whether a value stands for a function of the user's."""
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


class _Names(MutableMapping[str, Any]):
    """The names of a module that is executed."""

    def __init__(self, names: dict[str, Any], standing_for: Callable[..., Any]) -> None:
        self._names, self._standing_for = names, standing_for

    def __getitem__(self, name: str) -> Any:
        return self._names[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._names[name] = self._standing_for(self._names, value)

    def __delitem__(self, name: str) -> None:
        del self._names[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __or__(self, other: Any) -> dict[str, Any]:
        return self._names | dict(other)

    def __ror__(self, other: Any) -> dict[str, Any]:
        return dict(other) | self._names

    def copy(self) -> dict[str, Any]:
        """As of a dict."""
        return self._names.copy()
