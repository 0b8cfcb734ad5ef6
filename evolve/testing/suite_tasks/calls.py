"""Arguments of functions: as a user gives them, and recorded from a program that calls them."""

import ast
import contextlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from evolve.core.errors import FAILURES_OF_A_FUNCTION
from evolve.testing.checks import pairs
from evolve.testing.suite_tasks.captured import key_of
from evolve.testing.suite_tasks.hosts import Host, TooLarge, as_program
from evolve.worker.ipc.pytree import is_tensors

MOST_CALLS = 8  # that differ in shapes, types or plain arguments
MOST_TIMED = 3
Arguments = list[Any]
_Call = tuple[tuple[Any, ...], dict[str, Any]]


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


def method_arguments(method: Callable[..., Any], given: Mapping[str, Any]) -> Arguments:
    """The same of a method, without the object; one that takes anything takes nothing here."""
    signature = inspect.signature(method)
    bound = signature.bind(None, **given)
    bound.apply_defaults()
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    (_, *names) = signature.parameters
    kinds = {name: signature.parameters[name].kind for name in names}
    return [bound.arguments[name] for name in names if kinds[name] not in open_ended]


def input_groups(
    names: MutableMapping[str, Any], entry: str, part: str, most_bytes: int
) -> list[Arguments]:
    """Arguments of calls of a task's function that the files beside its module make.

    Args:
        names: of the task's module.
        entry: name of the function.
        part: `benchmark` for calls to be timed, if it has any of the size; or `tests`.
        most_bytes: of any tensor to be timed.
    """
    folder = Path(names["__file__"]).parent
    if part == "benchmark":
        found = calls_to_time(names, entry, folder / "benchmark.py", most_bytes)
        if found:
            return found
    return calls_in_tests(names, entry, folder / "tests.py")


def calls_in_tests(names: MutableMapping[str, Any], entry: str, tests: Path) -> list[Arguments]:
    """Arguments of the calls of a function that a test program makes, each kind once.

    The program runs here, with its inputs drawn from the state of torch's generator: calls that
    seed it are without effect, and `cuda` means the device on which inputs are made.

    Args:
        names: of the task's module.
        entry: name of the function.
        tests: file of the program.

    Raises:
        ValueError: no call of it gives tensors alone, or writes to some.
    """
    recorder = _Recorder(names[entry], _known(names))
    with as_program(), Host():
        exec(_compiled(tests), {**names, entry: recorder, "__name__": "tests"})
    found = list(recorder.calls.values())
    if not found:
        raise ValueError(f"the tests make no call of {entry} that gives tensors")
    return found[:MOST_CALLS]


def calls_to_time(
    names: MutableMapping[str, Any], entry: str, benchmark: Path, most_bytes: int
) -> list[Arguments]:
    """Arguments of the calls that a benchmark of the suite times: a few, up to a size.

    The benchmark is a class `performance_metrics` with `get_input_tensors`, `to_cuda` and
    `call_op`. Its modules that are not installed are left out.

    Args:
        names: see `calls_in_tests`.
        entry: see `calls_in_tests`.
        benchmark: file of the benchmark.
        most_bytes: of any tensor that it makes, and that a call makes of them.
    """
    given = {**names, "Performance_Metrics": _Metrics, "__name__": "benchmark"}
    with as_program(), Host(most_bytes):
        exec(_compiled(benchmark), given)
        # A suite's runner gives the type, so it is given here.
        metrics = given["performance_metrics"](dtype=torch.float32)
        with contextlib.suppress(TooLarge):
            metrics.get_input_tensors()
        given[entry] = _capture
        calls = [_captured(metrics, tensors) for tensors in metrics.input_tensors]
    function, known = names[entry], _known(names)
    found = [call for call in calls if call is not None and _fits(function, call, most_bytes)]
    return [
        bound_arguments(function, *call)
        for call in _spread(found, MOST_TIMED)
        if _repeats(function, call, known)
    ]


def _spread(found: list[_Call], most: int) -> list[_Call]:
    """The last, the first, and some between."""
    if len(found) <= most:
        return found
    return [found[number * (len(found) - 1) // (most - 1)] for number in range(most)]


class _Recorder:
    """A function that keeps the arguments of its calls, as they were before the call.

    It leaves out calls that neither give tensors nor write to some, those that are random, and
    those whose outcome has a tensor without a finite number.
    """

    def __init__(self, function: Callable[..., Any], known: dict[Any, bool]) -> None:
        self._function, self._known = function, known
        self.calls: dict[Any, Arguments] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = _copied((args, kwargs))
        result = self._function(*args, **kwargs)
        kind = key_of(before)
        gives = is_tensors(result) or (result is None and not _is_same(before, (args, kwargs)))
        if kind in self.calls or not gives:
            return result
        if _repeats(self._function, before, self._known):
            self.calls[kind] = bound_arguments(self._function, *before)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class _Captured(Exception):
    """The arguments of a call that was not made."""


def _capture(*args: Any, **kwargs: Any) -> None:
    raise _Captured(args, kwargs)


def _captured(metrics: Any, tensors: Any) -> _Call | None:
    try:
        metrics.call_op(metrics.to_cuda(tensors))
    except _Captured as call:
        args, kwargs = call.args
        return args, kwargs
    except TooLarge:
        pass
    return None


def _known(names: MutableMapping[str, Any]) -> dict[Any, bool]:
    """By kind, whether calls repeat: kept in the task's module, for its inputs are drawn often."""
    known: dict[Any, bool] = names.setdefault("_repeating", {})
    return known


def _fits(function: Callable[..., Any], call: _Call, most_bytes: int) -> bool:
    """Whether no operation of a call makes a tensor of more bytes, as far as shapes can tell."""
    args, kwargs = _mapped(call, lambda tensor: tensor.to("meta"))
    try:
        with torch.no_grad(), _Small(most_bytes):
            function(*args, **kwargs)
    except TooLarge:
        return False
    except FAILURES_OF_A_FUNCTION:
        return True  # it looks at values; its own faults show where it is called with them
    return True


class _Small(TorchDispatchMode):
    """Inside, an operation that makes a larger tensor raises TooLarge."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = result if isinstance(result, list | tuple) else [result]
        if any(isinstance(one, Tensor) and one.nbytes > self._most_bytes for one in made):
            raise TooLarge
        return result


class _Metrics:
    """In place of the base class of the suite's benchmarks."""

    def __init__(self, op_name: str = "", dtype: Any = None, **options: Any) -> None:
        self.op_name, self.dtype, self.kwargs = op_name, dtype, options
        self.input_tensors: list[Any] = []


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


def _repeats(function: Callable[..., Any], call: _Call, known: dict[Any, bool]) -> bool:
    """Whether two calls on the same arguments give the same, with numbers to judge by."""
    kind = key_of(call)
    if kind not in known:
        results = []
        for _ in range(2):
            args, kwargs = _copied(call)
            result = function(*args, **kwargs)
            results.append((args, kwargs) if result is None else result)
        known[kind] = _is_same(*results) and _has_numbers(results[0])
    return known[kind]


def _is_same(some: Any, own: Any) -> bool:
    """Whether all tensors of two trees are equal; NaN is equal to NaN."""
    return all(
        bool(((one == other) | ((one != one) & (other != other))).all())
        for _, one, other in pairs(some, own)
    )


def _has_numbers(tree: Any) -> bool:
    """Whether each tensor has a finite element."""
    return all(bool(own.isfinite().any()) for _, own, _ in pairs(tree, tree))


def _copied(tree: Any) -> Any:
    return _mapped(tree, lambda own: own.detach().clone())


def _mapped(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(tree, Tensor):
        return change(tree)
    if type(tree) in (list, tuple):
        return type(tree)(_mapped(one, change) for one in tree)
    if isinstance(tree, dict):
        return {key: _mapped(value, change) for key, value in tree.items()}
    return tree
