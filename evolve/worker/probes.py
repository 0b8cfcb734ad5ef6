"""Runtime probes for what made an outcome: ATen compute trapped, custom kernels stubbed.

Both run inside the candidate's process around one forward call. They only label: a candidate can
defeat them, so the judge compares the outcomes of both runs with what it knows, and values are
decided elsewhere.
"""

import contextlib
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from evolve.core.evaluation import Label

# Operations that make, describe or move data and compute nothing, by name without the overload.
_ALLOCATION = """
    empty empty_like empty_strided empty_permuted new_empty new_empty_strided zeros zeros_like
    new_zeros ones ones_like new_ones full full_like new_full scalar_tensor arange fill fill_
    zero zero_ lift lift_fresh lift_fresh_copy resize_ set_
"""
_MOVEMENT = """
    clone copy copy_ _to_copy to contiguous detach alias _local_scalar_dense is_pinned pin_memory
    _pin_memory cat stack constant_pad_nd _reshape_alias _unsafe_view reshape flatten
"""
_METADATA = """
    size stride storage_offset dim numel is_contiguous sym_size sym_stride sym_numel
    sym_storage_offset is_same_size
"""
ALLOWED = frozenset((_ALLOCATION + _MOVEMENT + _METADATA).split())
# Where the dispatcher keeps kernels that compute; the second kind serves every device.
_BACKENDS = ("CPU", "CUDA")
_SHARED_KERNELS = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# Read before any candidate runs: operators of other namespaces are the candidate's own.
_OF_TORCH = frozenset(schema.name.partition("::")[0] for schema in torch._C._jit_get_all_schemas())
_OPERATION = re.compile(r"\w{1,40}::\w{1,80}")


class AtenComputeTrapped(RuntimeError):
    """The candidate asked torch for a computation; `operation` is its name."""

    def __init__(self, operation: str) -> None:
        super().__init__(f"{operation} is trapped: no torch computation in this run")
        self.operation = operation


class Trap:
    """Which operation was trapped first, None while there was none."""

    def __init__(self) -> None:
        self.first: str | None = None

    def at(self, operation: str) -> Callable[..., Any]:
        """A function that does nothing but being trapped."""

        def trapped(*_: Any, **__: Any) -> Any:
            self.first = self.first or operation
            raise AtenComputeTrapped(operation)

        return trapped


@contextmanager
def trap_aten() -> Iterator[Trap]:
    """Inside, torch's compute operations raise `AtenComputeTrapped`; data movement passes.

    The kernels themselves are replaced, in torch's dispatcher: for all threads, for calls from
    C++, and for what the candidate's own operators (`torch.library`) do inside. So are the ways
    from tensors to numpy. A candidate that swallows the exception and goes another way gains
    nothing: it is raised again at the end. The value's `first` names what was trapped first.
    """
    trap = Trap()
    libraries: dict[tuple[str, str], Any] = {}
    to_numpy = {name: trap.at(f"numpy::{name}") for name in ("numpy", "__array__")}
    with warnings.catch_warnings(), _replaced(torch.Tensor, to_numpy):
        warnings.simplefilter("ignore")  # torch says that kernels are being replaced
        for name, backend in _compute_operations():
            namespace = name.partition("::")[0]
            key = namespace, backend
            if key not in libraries:
                libraries[key] = torch._C._dispatch_library("IMPL", namespace, backend, "", 0)
            libraries[key].impl(name, backend, trap.at(name.partition(".")[0]), False)
        try:
            yield trap
        finally:
            for library in libraries.values():
                library.reset()
    if trap.first is not None:
        raise AtenComputeTrapped(trap.first)


def _compute_operations() -> Iterator[tuple[str, str]]:
    """Operations (with overload) that compute, and the backend at which to replace them."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key
    shared = [name for key in _SHARED_KERNELS for name in registered(key)]
    for backend in _BACKENDS:
        own = registered(backend)
        for name in {*own, *shared} if own else ():
            if not _moves_data(name):
                yield name, backend


def _moves_data(name: str) -> bool:
    """Whether an operation of torch only makes, describes or moves data; others' are let pass."""
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    if namespace not in _OF_TORCH:
        return True
    if namespace != "aten":
        return False
    return base in ALLOWED or getattr(getattr(torch.ops.aten, base), overload or "default").is_view


@contextmanager
def stub_custom() -> Iterator[list[str]]:
    """Inside, functions of tvm_ffi modules and torch extensions, and Triton launches, do nothing.

    To be entered before the candidate is imported: a module keeps functions it has handed out.
    Outputs that a custom kernel should have written keep whatever their memory held. The value
    collects the names of what was skipped, in order.
    """
    skipped: list[str] = []
    with contextlib.ExitStack() as stack:
        stubs = (*_tvm_ffi_stubs(skipped), *_triton_stubs(skipped), *_torch_stubs(skipped))
        for owner, attributes in stubs:
            stack.enter_context(_replaced(owner, attributes))
        yield skipped


Stubs = list[tuple[Any, dict[str, Any]]]


def _tvm_ffi_stubs(skipped: list[str]) -> Stubs:
    try:
        import tvm_ffi
    except ImportError:
        return []

    def get_function(self: Any, name: str, query_imports: bool = False) -> Callable[..., None]:
        def skip(*_: Any) -> None:
            skipped.append(name)

        return skip

    get_function.__qualname__ = tvm_ffi.Module.get_function.__qualname__  # as if it were that
    names = ("get_function", "__getattr__", "__getitem__")
    return [(tvm_ffi.Module, dict.fromkeys(names, get_function))]


def _triton_stubs(skipped: list[str]) -> Stubs:
    try:
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction
    except ImportError:
        return []

    def run(kernel: Any, *_: Any, **__: Any) -> None:
        skipped.append(getattr(kernel, "__name__", "a Triton kernel"))

    return [(InterpretedFunction, {"run": run}), (JITFunction, {"run": run})]


def _torch_stubs(skipped: list[str]) -> Stubs:
    """Extensions of `torch.utils.cpp_extension`, where the candidate has it imported."""
    extension = sys.modules.get("torch.utils.cpp_extension")
    if extension is None:
        return []

    def load(name: str, path: str, is_python_module: bool) -> ModuleType:
        """The module with functions that do nothing; operators are left unregistered."""
        module = ModuleType(name)
        module.__getattr__ = lambda function: _skipping(skipped, function)  # type: ignore[method-assign]
        return module

    return [(extension, {"_import_module_from_library": load})]


def _skipping(skipped: list[str], name: str) -> Callable[..., None]:
    return lambda *_, **__: skipped.append(name)


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


def custom_label(
    trap_ok: bool, trapped_op: str | None, stub_still_correct: bool
) -> tuple[bool, tuple[Label, ...]]:
    """Whether custom kernels made the outcome, from the judged outcomes of both probes.

    Args:
        trap_ok: The outcome was right with ATen compute trapped.
        trapped_op: The first operation that was trapped, if any.
        stub_still_correct: The outcome was right with custom kernels doing nothing.

    The work counts as custom only if it is right without ATen compute and wrong without the
    custom kernels.
    """
    labels: list[Label] = []
    # The name comes out of the candidate's process, where it could be any text.
    if trapped_op is not None and not trap_ok:
        named = _OPERATION.match(trapped_op)
        operation = named[0] if named else "an operation of torch"
        labels.append(Label("aten_compute", f"{operation} was called in forward"))
    if stub_still_correct:
        labels.append(
            Label("decoy_kernel", "the outcome stays right when custom kernels do nothing")
        )
    return trap_ok and not stub_still_correct, tuple(labels)
