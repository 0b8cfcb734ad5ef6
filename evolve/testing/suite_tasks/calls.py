"""Arguments of functions: as a user gives them, and recorded from a program that calls them."""

import ast
import contextlib
import importlib.util
import inspect
import io
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

MOST_CALLS = 8  # that differ in shapes, types or plain arguments
MOST_TIMED = 3
_FACTORIES = ("empty", "full", "normal", "ones", "rand", "randint", "randn", "zeros")
Arguments = list[Any]


def arguments_of(function: Callable[..., Any], given: Any) -> Arguments:
    """One argument for each parameter of a function, defaults included, in their order.

    Args:
        function: of the task.
        given: a list or tuple of positional arguments, or a dict of arguments by name.
    """
    if isinstance(given, Mapping):
        return bound_arguments(function, (), given)
    return bound_arguments(function, tuple(given), {})


def bound_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Arguments:
    """The same of a call; a function without a signature has one tuple and one dict."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except ValueError:
        return [args, dict(kwargs)]
    bound.apply_defaults()
    return list(bound.arguments.values())


def calls_in_tests(names: Mapping[str, Any], entry: str, tests: Path) -> list[Arguments]:
    """Arguments of the calls of a function that a test program makes, each kind once.

    The program runs here, with its inputs drawn from the state of torch's generator: calls that
    seed it are without effect, and `cuda` means the device on which inputs are made.

    Args:
        names: of the task's module.
        entry: name of the function.
        tests: file of the program.

    Raises:
        ValueError: it calls the function with no arguments that give tensors alone.
    """
    recorder = _Recorder(names[entry])
    with _as_program(tests), _Host():
        exec(_compiled(tests), {**names, entry: recorder, "__name__": "tests"})
    found = list(recorder.calls.values())
    if not found:
        raise ValueError(f"the tests make no call of {entry} that gives tensors alone")
    return found[:MOST_CALLS]


def calls_to_time(
    names: Mapping[str, Any], entry: str, benchmark: Path, most_bytes: int
) -> list[Arguments]:
    """Arguments of the calls that a benchmark of the suite times: a few, up to a size.

    The benchmark is a class `performance_metrics` with `get_input_tensors`, `to_cuda` and
    `call_op`. Its modules that are not installed are left out.

    Args:
        names: see `calls_in_tests`.
        entry: see `calls_in_tests`.
        benchmark: file of the benchmark.
        most_bytes: of any tensor that it makes.
    """
    given = {**names, entry: _capture, "Performance_Metrics": _Metrics, "__name__": "benchmark"}
    with _as_program(benchmark), _Host(most_bytes):
        exec(_compiled(benchmark), given)
        # A suite's runner gives the type, so it is given here.
        metrics = given["performance_metrics"](dtype=torch.float32)
        with contextlib.suppress(_TooLarge):
            metrics.get_input_tensors()
        found = [
            bound_arguments(names[entry], *call)
            for tensors in metrics.input_tensors
            if (call := _captured(metrics, tensors)) is not None
        ]
    return _spread(found, MOST_TIMED)


def _spread(found: list[Arguments], most: int) -> list[Arguments]:
    """The last, the first, and some between."""
    if len(found) <= most:
        return found
    return [found[number * (len(found) - 1) // (most - 1)] for number in range(most)]


class _Recorder:
    """A function that keeps the arguments of its calls, as they were before the call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls: dict[str, Arguments] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = _copied(bound_arguments(self._function, args, kwargs))
        result = self._function(*args, **kwargs)
        if _is_tensors(result):
            self.calls.setdefault(_kind(arguments), arguments)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class _Captured(Exception):
    """The arguments of a call that was not made."""


def _capture(*args: Any, **kwargs: Any) -> None:
    raise _Captured(args, kwargs)


def _captured(metrics: Any, tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    try:
        metrics.call_op(metrics.to_cuda(tensors))
    except _Captured as call:
        args, kwargs = call.args
        return args, kwargs
    except _TooLarge:
        pass
    return None


class _Metrics:
    """In place of the base class of the suite's benchmarks."""

    def __init__(self, op_name: str = "", dtype: Any = None, **options: Any) -> None:
        self.op_name, self.dtype, self.kwargs = op_name, dtype, options
        self.input_tensors: list[Any] = []


class _TooLarge(Exception):
    """A tensor has more bytes than are allowed."""


class _Host(TorchFunctionMode):
    """Inside, `cuda` is the device on which inputs are made, and tensors have a largest size."""

    def __init__(self, most_bytes: int | None = None) -> None:
        super().__init__()
        self._place = torch.get_default_device()
        self._most_bytes = most_bytes

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = {name: self._here(value) for name, value in (kwargs or {}).items()}
        if func is Tensor.cuda:
            return args[0].to(self._place)
        args = tuple(map(self._here, args))
        if self._most_bytes is not None and getattr(func, "__name__", "") in _FACTORIES:
            size = func(*args, **{**kwargs, "device": "meta", "generator": None, "out": None})
            if size.nbytes > self._most_bytes:
                raise _TooLarge
        return func(*args, **kwargs)

    def _here(self, value: Any) -> Any:
        named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        if named or (isinstance(value, torch.device) and value.type == "cuda"):
            return self._place
        return value


@contextlib.contextmanager
def _as_program(path: Path) -> Iterator[None]:
    """What a program changes for itself (paths, output, seeds) is changed in here only."""
    seeds = [
        (torch, "manual_seed"), (torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all"),
        (numpy.random, "seed"), (random, "seed"),
    ]  # fmt: skip
    before = list(sys.path)
    with contextlib.ExitStack() as stack:
        for module, name in seeds:
            stack.enter_context(mock.patch.object(module, name))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        try:
            yield
        finally:
            sys.path[:] = before


def _compiled(path: Path) -> Any:
    """The program without imports of modules that are not installed."""
    tree = ast.parse(path.read_text(), path.name)
    tree.body = [statement for statement in tree.body if not _lacks_module(statement)]
    return compile(tree, path.name, "exec")


def _lacks_module(statement: ast.stmt) -> bool:
    names = []
    if isinstance(statement, ast.Import):
        names = [alias.name for alias in statement.names]
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        names = [statement.module]
    return any(not _is_there(name.partition(".")[0]) for name in names)


def _is_there(module: str) -> bool:
    return module in sys.modules or importlib.util.find_spec(module) is not None


def _copied(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, list | tuple) and type(tree) in (list, tuple):
        return type(tree)(map(_copied, tree))
    if isinstance(tree, dict):
        return {key: _copied(value) for key, value in tree.items()}
    return tree


def _is_tensors(tree: Any) -> bool:
    """Whether an outcome consists of tensors, one at least."""
    if isinstance(tree, Tensor):
        return True
    if isinstance(tree, dict):
        tree = list(tree.values())
    return isinstance(tree, list | tuple) and bool(tree) and all(map(_is_tensors, tree))


def _kind(tree: Any) -> str:
    """What two calls have in common if they differ in the values of tensors only."""
    if isinstance(tree, Tensor):
        return f"{tree.dtype}{tuple(tree.shape)}{tree.stride()}"
    if isinstance(tree, list | tuple):
        return f"[{', '.join(map(_kind, tree))}]"
    if isinstance(tree, dict):
        return f"{{{', '.join(f'{key}: {_kind(value)}' for key, value in tree.items())}}}"
    return repr(tree)
