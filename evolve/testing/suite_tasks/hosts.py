"""Programs that make inputs on `cuda` and seed generators, run where and as the judge needs it."""

import contextlib
import functools
import io
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar
from unittest import mock

import numpy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_FACTORIES = ("empty", "full", "normal", "ones", "rand", "randint", "randn", "zeros")
_EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, Tensor.new_empty)
P = ParamSpec("P")
T = TypeVar("T")


class TooLarge(Exception):
    """A tensor has more bytes than are allowed."""


class Host(TorchFunctionMode):
    """Inside, `cuda` is the device on which inputs are made, and tensors have a largest size.

    Tensors without values are zeros: the same inputs have to come again.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        super().__init__()
        self._place = torch.get_default_device()
        self._most_bytes = most_bytes

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: self._here(value) for name, value in (kwargs or {}).items()}
        if func is Tensor.cuda:
            return args[0].to(self._place)
        args = tuple(map(self._here, args))
        if self._most_bytes is not None and getattr(func, "__name__", "") in _FACTORIES:
            drawn = {"generator": None} if "generator" in kwargs else {}  # `zeros` takes none
            size = func(*args, **{**kwargs, **drawn, "device": "meta", "out": None})
            if size.nbytes > self._most_bytes:
                raise TooLarge
        made = func(*args, **kwargs)
        return made.zero_() if func in _EMPTY else made

    def _here(self, value: Any) -> Any:
        named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        if named or (isinstance(value, torch.device) and value.type == "cuda"):
            return self._place
        return value


def hosted(function: Callable[P, T]) -> Callable[P, T]:
    """The function with `cuda` as the device on which inputs are made, and seeds without effect.

    Its draws depend on the state of the global generators alone, also those from generators of
    its own.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        with _unseeded(), Host():
            return function(*args, **kwargs)

    return call


class _Drawn(torch.Generator):
    """A generator whose seed is drawn from the global one, whatever seed it is given."""

    def __new__(cls, device: Any = "cpu") -> "_Drawn":
        named = str(device).partition(":")[0] == "cuda"
        place = torch.get_default_device() if named else device
        made: _Drawn = super().__new__(cls, place)  # type: ignore[call-arg]
        made.manual_seed(0)
        return made

    def manual_seed(self, seed: int) -> torch.Generator:
        del seed
        drawn = torch.empty((), dtype=torch.int64, device="cpu").random_()
        return super().manual_seed(int(drawn))


@contextlib.contextmanager
def as_program() -> Iterator[None]:
    """What a program changes for itself (paths, output, seeds) is changed in here only."""
    before = list(sys.path)
    with _unseeded(), contextlib.redirect_stdout(io.StringIO()):
        try:
            yield
        finally:
            sys.path[:] = before


@contextlib.contextmanager
def _unseeded() -> Iterator[None]:
    """Calls that seed a generator are without effect; see `_Drawn`."""
    seeds = [
        (torch, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"),
        (numpy.random, "seed"), (random, "seed"),
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for module, name in seeds:
            stack.enter_context(mock.patch.object(module, name))
        stack.enter_context(mock.patch.object(torch, "Generator", _Drawn))
        yield
