"""Runtime probes for the origin of an outcome: torch's own work counted, custom kernels stubbed.

Both run inside the candidate's process around one forward call. They only label: a candidate can
defeat them, so the judge compares the outcomes of both runs with the expected ones, and values are
decided elsewhere. Functions that decide on the count are looked up before a candidate runs: it
hides no work by another function in the place of one of torch or of the standard library.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial, wraps
from threading import local
from typing import Any

import numpy
import torch
from torch import Tensor
from torch.library import get_kernel

from evolve.languages.registry import languages
from evolve.worker.base import operation_cost
from evolve.worker.base.operation_cost import Work, moves_data, work_of
from evolve.worker.ipc.pytree import tensors_of

# Where the dispatcher keeps kernels that compute; the second kind serves every device.
_CPU, _CUDA = "CPU", "CUDA"
_SHARED_KERNELS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# Read before any candidate runs: operators of other namespaces are the candidate's own.
_OF_TORCH = frozenset(schema.name.partition("::")[0] for schema in torch._C._jit_get_all_schemas())
_registered = torch._C._dispatch_get_registrations_for_dispatch_key
_library = torch._C._dispatch_library
_implement: Callable[..., None] = torch._C._DispatchModule.impl
_WithoutOverrides = torch._C.DisableTorchFunctionSubclass
_WAYS_TO_NUMPY = ("numpy", "__array__")
_MAX_ROWS = 32
_OTHERS = "aten::others"
_EXACT = {float: torch.float64, complex: torch.complex128}


_counting: list["Account"] = []


def prepare() -> None:
    """Look up torch's operations, before any process needs them; that runs none of them.

    It asks no driver for a GPU, which no process forked from this one could use after that.
    """
    operation_cost.prepare()
    for backend in (_CPU, _CUDA):
        _compute_operations(backend)


@wraps(numpy.from_dlpack)
def _from_dlpack(*arguments: Any, **options: Any) -> Any:
    """In numpy's place for good: a candidate may keep the function when it is imported."""
    for account in _counting:
        account.add("numpy::from_dlpack", None)
    return _of_numpy(*arguments, **options)


_of_numpy, numpy.from_dlpack = numpy.from_dlpack, _from_dlpack


class Account:
    """Torch's computations, call by call."""

    def __init__(self) -> None:
        self._calls: list[tuple[str, Work | None]] = []  # appended to by any thread
        self._of_thread = local()

    def forget(self) -> None:
        """Let go of all that was noted."""
        self._calls.clear()

    def add(self, name: str, work: Work | None) -> None:
        """Note a call of an operation; None if its work cannot be counted."""
        within: list[Work] | None = getattr(self._of_thread, "within", None)
        if work is None or within is None:
            self._calls.append((name, work))
        else:
            within.append(work)

    @contextmanager
    def inside(self, within: list[Work]) -> Iterator[None]:
        """Inside of an operation of torch: work of inner operations goes into `within`."""
        before = getattr(self._of_thread, "within", None)
        self._of_thread.within = within
        try:
            yield
        finally:
            self._of_thread.within = before

    def totals(self) -> dict[str, Work | None]:
        """By operation; None if one of its calls cannot be counted."""
        found: dict[str, Work | None] = {}
        for name, work in self._calls:
            before = found.get(name, Work())
            found[name] = None if work is None or before is None else before + work
        return found

    def to_json(self) -> str:
        """Rows of name, bytes and operations (null if they cannot be counted), largest first."""
        rows = sorted(self.totals().items(), key=lambda row: row[1] or _MAX_WORK, reverse=True)
        kept, rest = rows[:_MAX_ROWS], [work for _, work in rows[_MAX_ROWS:]]
        if rest:
            counted = [work for work in rest if work is not None]
            whole = sum(counted, start=Work()) if len(counted) == len(rest) else None
            kept.append((_OTHERS, whole))
        texts = [
            f'["{name}", null, null]' if work is None else f'["{name}", {work[0]}, {work[1]}]'
            for name, work in kept
        ]
        return f"[{', '.join(texts)}]"


_MAX_WORK = Work(sys.maxsize, sys.maxsize)


@contextmanager
def count_aten(on_gpu: bool = False) -> Iterator[Account]:
    """Inside, the work of torch's compute operations is counted; data movement is not.

    Their kernels are replaced, in torch's dispatcher, by functions that call them: for all threads,
    for calls from C++, and for calls inside the candidate's own operators (`torch.library`). An
    operation counts with its own work, or with that of the operations inside its kernel, if that is
    more: the kernel may be the candidate's. Ways from tensors to numpy are noted.
    """
    account = Account()
    libraries: dict[tuple[str, str], Any] = {}
    with warnings.catch_warnings(), _replaced(Tensor, _noted_ways_to_numpy(account)):
        warnings.simplefilter("ignore")  # torch says that kernels are being replaced
        backends = (_CPU, _CUDA) if on_gpu else (_CPU,)
        found = [(name, backend) for backend in backends for name in _compute_operations(backend)]
        kernels = [(*at, get_kernel(*at)) for at in found]
        for name, backend, kernel in kernels:
            namespace = name.partition("::")[0]
            key = namespace, backend
            if key not in libraries:
                libraries[key] = _library("IMPL", namespace, backend, "", 0)
            counted = partial(_counted, account, name, kernel)
            _implement(libraries[key], name, backend, counted, True)
        _counting.append(account)
        try:
            yield account
        finally:
            _counting.remove(account)
            for library in libraries.values():
                library.reset()


def _counted(
    account: Account, name: str, kernel: Any, keys: Any, *arguments: Any, **options: Any
) -> Any:
    """Run `kernel`, and note its work, also if it fails."""
    operation = _operation(name)
    arguments = _with_tensors(operation, arguments)
    within: list[Work] = []
    work: Work | None = Work()
    try:
        with account.inside(within):
            outcome = kernel.call_boxed(keys, *arguments, **options)
        is_known = operation.namespace == "aten"
        with _WithoutOverrides():
            work = work_of(operation, arguments, options, outcome) if is_known else None
        return outcome
    finally:
        account.add(name.partition(".")[0], work and work.at_least(sum(within, start=Work())))


@cache
def _operation(name: str) -> Any:
    """The overload of this name."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _with_tensors(operation: Any, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Numbers as tensors, where the operation takes those: the dispatcher has unpacked them."""
    given = tensors_of(list(arguments))
    declared = operation._schema.arguments
    return tuple(
        _as_tensor(value, given)
        if isinstance(value, bool | int | float | complex) and "Tensor" in str(of.type)
        else value
        for value, of in zip(arguments, declared, strict=False)
    )


def _as_tensor(number: complex, beside: list[Tensor]) -> Tensor:
    """As exact as possible, in a type that gives the outcome the type it has with the number."""
    if not beside:
        return torch.tensor(number)
    promoted = torch.result_type(beside[0], number)
    if beside[0].dim() and promoted == beside[0].dtype:  # for any type of the number
        return torch.tensor(number, dtype=_EXACT.get(type(number)))
    return torch.tensor(number, dtype=promoted)


def _noted_ways_to_numpy(account: Account) -> dict[str, Callable[..., Any]]:
    def noted(name: str) -> Callable[..., Any]:
        way = getattr(Tensor, name)

        def go(*arguments: Any, **options: Any) -> Any:
            account.add(f"numpy::{name}", None)
            return way(*arguments, **options)

        return go

    return {name: noted(name) for name in _WAYS_TO_NUMPY}


def _compute_operations(backend: str) -> list[str]:
    """Operations (with overload) of a backend that compute."""
    own = _registered(backend)
    shared = [name for key in _SHARED_KERNELS for name in _registered(key)]
    return [name for name in {*own, *shared} if _computes(name)] if own else []


@cache
def _computes(name: str) -> bool:
    """Whether an operation is one of torch that does more than to make, describe or move data."""
    namespace = name.partition("::")[0]
    if namespace not in _OF_TORCH:
        return False
    return namespace != "aten" or not moves_data(_operation(name))


@contextmanager
def stub_custom() -> Iterator[list[str]]:
    """Inside, kernels of all languages do nothing.

    To be entered before the candidate is imported: a module keeps functions it has handed out.
    Outputs that a custom kernel should have written keep the old content of their memory. The value
    collects the names of skipped kernels, in order.
    """
    skipped: list[str] = []
    with contextlib.ExitStack() as stack:
        for stubs in dict.fromkeys(one.stubs for one in languages().values() if one.stubs):
            for owner, attributes in stubs(skipped):
                stack.enter_context(_replaced(owner, attributes))
        yield skipped


@contextmanager
def _replaced(owner: Any, attributes: Mapping[str, Any]) -> Iterator[None]:
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
